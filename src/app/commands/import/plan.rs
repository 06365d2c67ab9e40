//! How the fixes of a file are decoded: by the rules for messages, with the names and units of the file.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::orders::{Kind, Orders};
use super::read::GPX_TIME;
use milepost_decode::formats::{Fields, Format, Mapping, shipped};
use milepost_decode::position::{DRIVER_ID_RULE, DriverId};
use milepost_decode::{Driver, Keep, Pointer, Source, SpeedUnit, Template, TimeUnit};

/// A field of a fix, and its names in CSV (in lower case, the preferred one first), GPX and GeoJSON.
type Known = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// GPX 1.0 has `speed` and `course`, in metres per second and degrees; so have the extensions of 1.1. The names of GeoJSON are for
/// `--field`: without it the format `geojson` reads these and other names of the time.
const FIELDS: [Known; 8] = [
    ("lat", &["lat", "latitude"], &["lat"], &["/geometry/coordinates/1"]),
    ("lng", &["lng", "lon", "long", "longitude"], &["lon"], &["/geometry/coordinates/0"]),
    ("ts", CSV_TIMES, &[GPX_TIME], &["/properties/ts"]),
    ("speed", &["speed", "velocity"], &["speed"], &["/properties/speed"]),
    ("heading", &["heading", "course", "bearing"], &["course"], &["/properties/heading"]),
    ("alt", &["alt", "altitude", "ele", "elevation"], &["ele"], &["/geometry/coordinates/2"]),
    ("acc", &["acc", "accuracy"], &[], &["/properties/acc"]),
    ("seq", &["seq"], &[], &["/properties/seq"]),
];
const CSV_TIMES: &[&str] = &["ts", "timestamp", "fixtime", "time", "datetime"];

/// The topic that a fix is to have come on, whose only `+` is a driver that does not come from the payload.
const TOPIC: &str = "import/+";

/// How a file is decoded.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) sources: Vec<Source>,
    pub(super) topic: String,
    /// The CSV column that is the time.
    pub(super) time_column: Option<usize>,
}

/// `columns`: of a CSV file.
pub(super) fn plan(
    kind: Kind,
    path: &Path,
    columns: &[String],
    orders: &Orders,
    configured: &[Source],
) -> Result<Plan> {
    if kind == Kind::OwnTracks {
        let (has_fields, has_unit) = (!orders.fields.is_empty(), orders.speed_unit.is_some());
        ensure!(
            !has_fields && !has_unit,
            "--field and --speed-unit: the fields and units of a Recorder's file are known"
        );
    }
    if kind == Kind::OwnTracks && orders.driver.is_none() {
        ensure!(
            orders.keep.is_empty(),
            "--keep: here it goes by `keep` of the source in the configuration; or give --driver"
        );
        return owntracks(path, configured);
    }
    let (driver, filter, topic) = driver(kind, path, columns, orders)?;
    let speed_unit = || {
        let known = (kind == Kind::Gpx).then_some(SpeedUnit::MetresPerSecond);
        let missing = "it does not state the unit of its speeds: give --speed-unit";
        orders.speed_unit.or(known).context(missing)
    };
    let mut time_column = None;
    let format = match kind {
        Kind::OwnTracks => Format::Mapped(Arc::new(shipped("owntracks", None).expect("it is shipped"))),
        Kind::GeoJson | Kind::GeoJsonLines if orders.fields.is_empty() => Format::GeoJson(speed_unit()?),
        Kind::GeoJson | Kind::GeoJsonLines => {
            let find = |names: &[&str]| names.first().map(|name| (*name).to_owned());
            mapping(|(_, _, _, names)| names, orders, find, speed_unit)?
        }
        Kind::Gpx => {
            let find = |names: &[&str]| names.first().map(|name| pointer_to(name));
            mapping(|(_, _, names, _)| names, orders, find, speed_unit)?
        }
        Kind::Csv => {
            let column = |names: &[&str]| {
                names
                    .iter()
                    .find_map(|name| columns.iter().position(|column| column.eq_ignore_ascii_case(name)))
            };
            let ts = orders.fields.iter().rev().find(|(field, _)| field == "ts");
            time_column = ts.map_or_else(|| column(CSV_TIMES), |(_, at)| column(&[at]));
            let find = |names: &[&str]| column(names).map(|n| pointer_to(&columns[n]));
            mapping(|(_, names, _, _)| names, orders, find, speed_unit)?
        }
    };
    let keep = Keep::of_names(&orders.keep).map_err(|why| anyhow!("--keep: {why}"))?;
    if let (Kind::Csv, Keep::Named(names)) = (kind, &keep) {
        let missing = names.iter().find(|name| !columns.iter().any(|column| column == *name));
        ensure!(missing.is_none(), "--keep {}: the file has no such column", missing.expect("one"));
    }
    Ok(Plan { sources: vec![Source::new(filter, driver, format, keep)], topic, time_column })
}

fn pointer_to(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The mapping of a file with the fields that `find` finds in it by the given names or those of its kind.
fn mapping(
    names: fn(&Known) -> &'static [&'static str],
    orders: &Orders,
    find: impl Fn(&[&str]) -> Option<String>,
    speed_unit: impl Fn() -> Result<SpeedUnit>,
) -> Result<Format> {
    let fields = FIELDS.map(|(field, ..)| field);
    if let Some((field, _)) = orders.fields.iter().find(|(field, _)| !fields.contains(&field.as_str())) {
        bail!("--field {field}: there is {}", fields.join(", "));
    }
    let pointer = |known: Known| {
        let (field, ..) = known;
        let at = match orders.fields.iter().rev().find(|(given, _)| given == field) {
            Some((_, at)) => {
                Some(find(&[at]).with_context(|| format!("--field {field}={at}: the file has no {at}"))?)
            }
            None => find(names(&known)),
        };
        at.map(|at| Pointer::new(&at).map_err(|why| anyhow!("--field {field}: {why}"))).transpose()
    };
    let [lat, lng, ts, speed, heading, alt, acc, seq] = FIELDS.map(pointer);
    let required = |pointer: Option<Pointer>, field: &str| {
        pointer.with_context(|| format!("it has no column {field}: give --field {field}=COLUMN"))
    };
    Ok(Format::Mapped(Arc::new(Mapping::new(Fields {
        points: None,
        lat: required(lat?, "lat")?,
        lng: required(lng?, "lng")?,
        ts: Some((required(ts?, "ts")?, TimeUnit::BySize)),
        speed: speed?
            .map(|pointer| speed_unit().map(|unit| (pointer, unit.metres_per_second())))
            .transpose()?,
        heading: heading?,
        alt: alt?.map(|pointer| (pointer, 1.0)),
        acc: acc?,
        seq: seq?,
        driver: None,
        more: None,
    }))))
}

/// Where the driver's id comes from, the filter of the source, and the topic.
fn driver(
    kind: Kind,
    path: &Path,
    columns: &[String],
    orders: &Orders,
) -> Result<(Driver, &'static str, String)> {
    let named = match &orders.driver {
        Some(named) => {
            let has_name = path != Path::new("-") || !named.contains("{file}");
            ensure!(has_name, "--driver {named}: standard input has no name: give an id");
            named.replace("{file}", &path.file_stem().unwrap_or_default().to_string_lossy())
        }
        None if kind == Kind::Csv && columns.iter().any(|column| column == "driver_id") => {
            "/driver_id".to_owned()
        }
        None => bail!("it does not name the driver: give --driver"),
    };
    if named.starts_with('/') {
        ensure!(kind != Kind::Gpx, "--driver {named}: a GPX file names no driver: give an id, or {{file}}");
        let pointer = Pointer::new(&named).map_err(|why| anyhow!("--driver {why}"))?;
        return Ok((Driver::Payload(pointer), "import", "import".to_owned()));
    }
    ensure!(DriverId::new(&named).is_ok(), "--driver {named:?}: {DRIVER_ID_RULE}");
    let of_topic = Template::new("{1}", 1).expect("well formed");
    Ok((Driver::Topic(of_topic), TOPIC, TOPIC.replace('+', &named)))
}

/// The Recorder keeps `rec/USER/DEVICE/YYYY-MM.rec`; the driver is who the configuration takes for `owntracks/USER/DEVICE`.
fn owntracks(path: &Path, configured: &[Source]) -> Result<Plan> {
    let folders = path.parent().into_iter().flat_map(Path::iter);
    let folders: Vec<_> = folders.map(|folder| folder.to_string_lossy()).collect();
    let [.., user, device] = &folders[..] else {
        bail!("it is not in the folders USER/DEVICE of a Recorder, which name the driver: give --driver");
    };
    let topic = format!("owntracks/{user}/{device}");
    ensure!(
        configured.iter().any(|source| source.takes(&topic)),
        "no source of the configuration takes {topic}, which names the driver: give --driver"
    );
    Ok(Plan { sources: configured.to_vec(), topic, time_column: None })
}
