//! Plans the decoding of a file: by the rules for messages, with the names and units of the file.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::args::{ImportArgs, Kind};
use super::columns;
use super::described::describe_fields;
use super::hemispheres::{LateHemispheres, SignedColumn};
use super::names::Column;
use super::row_checks::{Meridiems, RowChecks};
use super::xml::GPX_TIME;
use super::zones::ZoneCheck;
use milepost_config::Config;
use milepost_decode::attributes::ATTRIBUTES_MAX;
use milepost_decode::formats::{Degrees, Fields, Format, Mapping, More, shipped};
use milepost_decode::position::{DRIVER_ID_RULE, DriverId};
use milepost_decode::{
    Driver, Keep, Local, PatternZone, Pointer, Quantity, Source, SpeedUnit, Template, TimeUnit,
    Zone,
};

/// The fields of a fix, each with its JSON pointer in GPX and in GeoJSON; empty if there is none.
/// `speed` (m/s) and `course` (degrees) are elements of GPX 1.0, and of extensions to GPX 1.1.
const FIELDS: [(&str, &str, &str); 8] = [
    ("lat", "/lat", "/geometry/coordinates/1"),
    ("lng", "/lon", "/geometry/coordinates/0"),
    ("ts", GPX_TIME, "/properties/ts"),
    ("speed", "/speed", "/properties/speed"),
    ("heading", "/course", "/properties/heading"),
    ("alt", "/ele", "/geometry/coordinates/2"),
    ("acc", "", "/properties/acc"),
    ("seq", "", "/properties/seq"),
];

/// The topic filter of a file with one driver: `+` stands for the driver's id. If the file names
/// the driver of each fix, the topic is `import` instead.
const TOPIC: &str = "import/+";

/// The sources and columns with which a file is decoded.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) sources: Vec<Source>,
    pub(super) topic: String,
    /// Indices of the CSV columns that hold numbers.
    pub(super) numbers: Vec<usize>,
    /// Checks that each row of a CSV file must pass.
    pub(super) checks: RowChecks,
    /// Description of each field that is read: its name, place and unit.
    pub(super) read: Vec<String>,
    /// The CSV columns that are not read.
    pub(super) unread: Vec<String>,
}

/// Facts about a file that are known before it is imported: its kind, its path, and the first rows
/// of a CSV file.
pub(super) struct FileInfo<'f> {
    pub(super) kind: Kind,
    pub(super) path: &'f Path,
    /// Column names of a CSV file; `sample` holds the first value of each column.
    pub(super) columns: &'f [String],
    pub(super) sample: &'f [String],
    /// The first rows of a CSV file.
    pub(super) rows: &'f [Vec<String>],
}

/// Returns the plan for a file.
///
/// # Errors
/// The arguments do not fit the file: for example, a required field has no column.
pub(super) fn plan(file: &FileInfo<'_>, args: &ImportArgs, config: &Config) -> Result<Plan> {
    let FileInfo { kind, path, columns, .. } = *file;
    let format_name = args.formats.iter().find(|name| Kind::from_name(name).is_none());
    if kind == Kind::OwnTracks {
        let (has_fields, has_unit) = (!args.fields.is_empty(), args.speed_unit.is_some());
        ensure!(
            !has_fields && !has_unit,
            "leave out --field and --speed-unit: the fields and units of a Recorder file are fixed"
        );
        ensure!(args.zone.is_none(), "leave out --zone: the times of a Recorder file need no zone");
    }
    if kind == Kind::OwnTracks && args.driver.is_none() {
        ensure!(
            args.keep.is_empty(),
            "leave out --keep, since `keep` of the configured source applies; or give --driver"
        );
        return owntracks(path, &config.sources);
    }
    let mapping = match (format_name, kind) {
        (Some(name), _) => {
            ensure!(
                args.fields.is_empty(),
                "--field and --format {name} both say where the fields are: give only one of them"
            );
            Some(format_named(name, config)?)
        }
        (None, Kind::OwnTracks) => {
            Some(Arc::new(shipped("owntracks", None).expect("owntracks is a shipped format")))
        }
        (None, _) => None,
    };
    let own_driver = mapping.as_ref().and_then(|mapping| mapping.driver().cloned());
    let (driver, filter, topic) = driver(file, own_driver, args)?;
    let speed_unit = || {
        let known = kind.uses_gpx_names().then_some(1.0);
        let missing = "it does not state the unit of its speeds: give --speed-unit";
        args.speed_unit.or(known).context(missing)
    };
    let fields = config.clickhouse.fields.iter();
    let computed_from: Vec<String> = fields.flat_map(|field| field.from.clone()).collect();
    let (mut read, mut numbers, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    let mut checks = RowChecks::default();
    let format = match (mapping, kind) {
        (Some(mapping), _) => Format::Mapped(mapping),
        (None, Kind::GeoJson | Kind::GeoJsonLines) if is_default(args) => {
            let unit = speed_unit()?;
            let units = SpeedUnit::NAMES.map(|(_, unit)| unit);
            let same = units.into_iter().find(|known| known.metres_per_second() == unit);
            Format::GeoJson(
                same.context(
                    "--speed-unit: must be m/s, km/h, mph or knots unless you give --field",
                )?,
            )
        }
        (None, Kind::Csv) => {
            let (sample, rows) = (file.sample, file.rows);
            let found = columns::find(columns, sample, rows, &args.fields)?;
            checks = row_checks(file, &found, args)?;
            let kept: Vec<String> = args.keep.iter().chain(&computed_from).cloned().collect();
            unread = columns::unread(columns, sample, &found, &kept, &driver_column(&driver));
            checks.split_degrees = columns::split_degrees(columns, rows, &found);
            numbers = found
                .iter()
                .filter(|(field, _)| !is_text(field))
                .map(|(_, column)| column.at)
                .collect();
            let fields = fields_of_columns(&found, columns, args, speed_unit, &mut read)?;
            Format::Mapped(Arc::new(Mapping::new(fields)))
        }
        (None, _) => {
            let fields = fields_by_names(kind, args, speed_unit)?;
            read = describe_fields(kind, args, fields.speed.as_ref().map(|(_, factor)| *factor));
            Format::Mapped(Arc::new(Mapping::new(fields)))
        }
    };
    let keep = Keep::of_names(&args.keep).map_err(|why| anyhow!("--keep: {why}"))?;
    if let (Kind::Csv, Keep::Named(names)) = (kind, &keep) {
        let missing = names.iter().find(|name| !columns.iter().any(|column| column == *name));
        ensure!(missing.is_none(), "--keep {}: the file has no such column", missing.expect("one"));
        let twice =
            names.iter().find(|name| columns.iter().filter(|column| column == name).count() > 1);
        ensure!(twice.is_none(), "two columns are named {}: rename one", twice.expect("one"));
    }
    let mut source =
        Source::new(filter, driver, format, keep).keeping(&computed_from).map_err(|count| {
            anyhow!("--keep: there are {count} names with those of [fields.NAME]; the limit is {ATTRIBUTES_MAX}")
        })?;
    if let Some(zone) = &args.zone {
        source = source.in_zone(zone.clone());
    }
    Ok(Plan { sources: vec![source], topic, numbers, checks, read, unread })
}

/// Returns the checks of the rows of a CSV file.
///
/// # Errors
/// One of the first rows fails them.
fn row_checks(
    file: &FileInfo<'_>,
    found: &[(&'static str, Column)],
    args: &ImportArgs,
) -> Result<RowChecks> {
    let FileInfo { columns, sample, rows, .. } = *file;
    let places = found.iter().filter(|(field, _)| matches!(*field, "lat" | "lng"));
    let signed = places.filter_map(|(field, column)| {
        let texts = (&*columns[column.at], sample.get(column.at).map_or("", String::as_str));
        SignedColumn::new((field, column.at), texts, (args.unit_of(field), column.unit))
    });
    let without_zone = || ZoneCheck::new(columns, found, args.unit_of("ts"));
    let checks = RowChecks {
        split_degrees: Vec::new(),
        zones: if args.zone.is_none() { without_zone() } else { None },
        meridiems: Meridiems::new(columns, rows, found),
        signed: signed.collect(),
        hemispheres: LateHemispheres::new(columns, rows, found),
    };
    let value = |row: &'_ Vec<String>, at: usize| row.get(at).cloned().unwrap_or_default().into();
    match rows.iter().find_map(|row| checks.fault(|at| value(row, at))) {
        Some(why) => bail!("{why}"),
        None => Ok(checks),
    }
}

/// Returns whether no argument changes the names or units of GeoJSON's fields.
fn is_default(args: &ImportArgs) -> bool {
    let ImportArgs { fields, units, unknown, alt_unit, .. } = args;
    fields.is_empty() && units.is_empty() && unknown.is_empty() && alt_unit.is_none()
}

/// Returns whether the values of a field are strings, so that a comma in them is not a decimal
/// comma.
fn is_text(field: &str) -> bool {
    matches!(field, "ts" | "date" | "seq") || field.ends_with("_hemisphere")
}

/// Returns a format of the configuration, or one that milepost ships.
fn format_named(name: &str, config: &Config) -> Result<Arc<Mapping>> {
    if let Some(mapping) = config.formats.get(name) {
        return Ok(Arc::clone(mapping));
    }
    if let Some(mapping) = shipped(name, Some(SpeedUnit::MetresPerSecond)) {
        return Ok(Arc::new(mapping));
    }
    let own: Vec<&str> = config.formats.keys().map(String::as_str).collect();
    bail!(
        "--format {name}: must be one of gpx, tcx, kml, geojson, geojsonl, timeline, csv and rec, or a format that says where the fields are; {}",
        if own.is_empty() {
            "the configuration has no [formats.NAME]".to_owned()
        } else {
            format!("the configuration has {}", own.join(", "))
        }
    )
}

/// Returns the column that holds the driver's id; an empty string if there is none.
fn driver_column(driver: &Driver) -> String {
    match driver {
        Driver::Payload(pointer) => pointer.as_str().trim_start_matches('/').to_owned(),
        Driver::Topic(_) => String::new(),
    }
}

/// Returns the JSON pointer to the member of this name.
fn pointer_to(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn pointer(field: &str, at: &str) -> Result<Pointer> {
    Pointer::new(at).map_err(|why| anyhow!("--field {field}: {why}"))
}

/// Returns the options of the mapping that apply to any kind of file, and the unit of time.
fn common_options(args: &ImportArgs, default_zone: Option<Zone>) -> Result<(More, TimeUnit)> {
    const KNOWN: [&str; 5] = ["lat", "lng", "ts", "heading", "acc"];
    if let Some((field, _)) = args.units.iter().find(|(field, _)| !KNOWN.contains(&&**field)) {
        bail!(
            "--unit {field}: must be one of {}; for speed and alt give --speed-unit and --alt-unit",
            KNOWN.join(", ")
        );
    }
    let invalid = |why: String| anyhow!("--unit: {why}");
    let (mut more, mut unit) =
        (More { unknown: args.unknown.clone(), ..More::default() }, TimeUnit::BySize);
    if let Some(lat) = args.unit_of("lat").map(Degrees::new).transpose().map_err(invalid)? {
        more.degrees = [lat, lat.unsigned()];
    }
    if let Some(lng) = args.unit_of("lng").map(Degrees::new).transpose().map_err(invalid)? {
        more.degrees[1] = lng;
    }
    let factor = |field, quantity: Quantity| {
        args.unit_of(field).map_or(Ok(1.0), |unit| quantity.factor(unit).map_err(invalid))
    };
    (more.heading, more.acc) =
        (factor("heading", Quantity::Angle)?, factor("acc", Quantity::Length)?);
    let mut pattern = None;
    if let Some(given) = args.unit_of("ts") {
        if given.contains('%') {
            if let (Some(PatternZone::Letters(letters)), None) =
                (Local::zone_of_pattern(given), &args.zone)
            {
                bail!(
                    "--unit ts: {letters} names a zone, but is not read as one: give --zone, such \
                     as --zone America/New_York"
                );
            }
            (pattern, unit) =
                (Some(Local::check_pattern(given).map_err(invalid)?), TimeUnit::Pattern);
        } else {
            let known = TimeUnit::NAMES.iter().find(|(name, _)| *name == given);
            unit = known.map(|(_, unit)| *unit).ok_or_else(|| {
                invalid(format!("ts={given}: must be s, ms, us, ns, rfc3339, auto or a pattern"))
            })?;
        }
    }
    let zone = args.zone.clone().or(default_zone);
    if zone.is_some() || pattern.is_some() {
        more.local = Some(Arc::new(Local { zone, pattern }));
    }
    Ok((more, unit))
}

/// Returns the mapping of a CSV file, and appends a description of each field to `read`.
fn fields_of_columns(
    found: &[(&'static str, Column)],
    columns: &[String],
    args: &ImportArgs,
    speed_unit: impl Fn() -> Result<f64>,
    read: &mut Vec<String>,
) -> Result<Fields> {
    let (mut more, time_unit) = common_options(args, Some(Zone::utc()))?;
    let get =
        |field: &str| found.iter().find(|(known, _)| *known == field).map(|(_, column)| column);
    let at = |field: &str| {
        get(field).map(|column| pointer(field, &pointer_to(&columns[column.at]))).transpose()
    };
    let required = |field: &str| {
        at(field)?.with_context(|| {
            let names: Vec<String> = columns.iter().map(|name| format!("{name:.40}")).collect();
            let is_value = |name: &String| name.parse::<f64>().is_ok();
            if columns.len() == 1 || columns.iter().any(is_value) {
                let names = names.join(", ");
                return format!(
                    "it has no column {field}, only {names}: the first row must name the columns, \
                     separated by , ; tab or |"
                );
            }
            let near = columns::similar_column(columns, field).map_or_else(
                || format!("give --field {field}=COLUMN"),
                |name| format!("give --field {field}='{name}'"),
            );
            format!("it has no column {field}, only {}: {near}", names.join(", "))
        })
    };
    more.hemispheres = [at("lat_hemisphere")?, at("lng_hemisphere")?];
    more.date = at("date")?;
    for (n, field) in ["lat", "lng"].into_iter().enumerate() {
        if let (Some(unit), None) =
            (get(field).and_then(|column| column.unit), args.unit_of(field).or(args.unit_of("lat")))
        {
            more.degrees[n] = Degrees::new(unit).map_err(|why| anyhow!(why))?;
        }
    }
    let factor = |field: &str, quantity: Quantity, given: Option<f64>| -> Result<Option<f64>> {
        let stated = get(field).and_then(|column| column.unit);
        let stated =
            stated.map(|unit| quantity.factor(unit)).transpose().map_err(|why| anyhow!(why))?;
        Ok(given.or(stated))
    };
    if args.unit_of("heading").is_none() {
        more.heading = factor("heading", Quantity::Angle, None)?.unwrap_or(1.0);
    }
    if args.unit_of("acc").is_none() {
        more.acc = factor("acc", Quantity::Length, None)?.unwrap_or(1.0);
    }
    let alt_factor = factor("alt", Quantity::Length, args.alt_unit)?.unwrap_or(1.0);
    let speed = match at("speed")? {
        Some(pointer) => {
            let factor =
                factor("speed", Quantity::Speed, args.speed_unit)?.map_or_else(&speed_unit, Ok)?;
            Some((pointer, factor))
        }
        None => None,
    };
    more.unknown.extend(columns::ais_unavailable(found, columns));
    for (field, column) in found {
        let name = &columns[column.at];
        let unit = match *field {
            "speed" => speed.as_ref().map(|(_, factor)| format!("1 = {factor:.6} m/s")),
            "alt" => Some(format!("1 = {alt_factor} m")),
            "ts" if more.local.as_ref().is_some_and(|local| local.zone.is_some()) => {
                let zone = args.zone.as_ref().map_or("Z", Zone::name);
                Some(format!("without an offset: {zone}"))
            }
            _ => column.unit.map(str::to_owned),
        };
        read.push(format!(
            "{field} = {name}{}",
            unit.map_or(String::new(), |unit| format!(" ({unit})"))
        ));
    }
    for (slot, value) in &more.unknown {
        read.push(format!("{} {value} means unknown", milepost_decode::formats::FIELDS[*slot]));
    }
    Ok(Fields {
        points: None,
        lat: required("lat")?,
        lng: required("lng")?,
        ts: Some((required("ts")?, time_unit)),
        speed,
        heading: at("heading")?,
        alt: at("alt")?.map(|pointer| (pointer, alt_factor)),
        acc: at("acc")?,
        seq: at("seq")?,
        driver: None,
        more: Some(Box::new(more)),
    })
}

/// Returns the mapping of a file other than CSV: its kind determines the places of the fields,
/// unless `--field` overrides them.
fn fields_by_names(
    kind: Kind,
    args: &ImportArgs,
    speed_unit: impl Fn() -> Result<f64>,
) -> Result<Fields> {
    let (mut more, time_unit) = common_options(args, (kind == Kind::Gpx).then(Zone::utc))?;
    if kind.uses_gpx_names() && more.local.is_none() {
        more.local = Some(Arc::default());
    }
    // TCX and KML files have points without coordinates, for example during a pause.
    more.may_lack_position = matches!(kind, Kind::Tcx | Kind::Kml);
    let known = FIELDS.map(|(field, ..)| field);
    let hemisphere_fields = ["lat_hemisphere", "lng_hemisphere"];
    if let Some((field, _)) = args
        .fields
        .iter()
        .find(|(field, _)| !known.contains(&&**field) && !hemisphere_fields.contains(&&**field))
    {
        let all = [&known[..], &hemisphere_fields[..]].concat();
        bail!("--field {field}: must be one of {}", all.join(", "));
    }
    let given =
        |field: &str| args.fields.iter().rev().find(|(given, _)| given == field).map(|(_, at)| at);
    let to = |field: &str, at: &str| {
        let at = if at.starts_with('/') { at.to_owned() } else { pointer_to(at) };
        pointer(field, &at)
    };
    let mut at = |field: &'static str| -> Result<Option<Pointer>> {
        let (_, gpx, geojson) =
            *FIELDS.iter().find(|(known, ..)| *known == field).expect("FIELDS has every field");
        let usual = match (field, kind) {
            ("acc", Kind::Timeline) => "/accuracy",
            _ if kind.uses_gpx_names() => gpx,
            _ => geojson,
        };
        let Some(name) = given(field) else {
            return if usual.is_empty() { Ok(None) } else { to(field, usual).map(Some) };
        };
        if let (Some((date, time)), "ts") = (name.split_once('+'), field) {
            more.date = Some(to("ts", date)?);
            return to("ts", time).map(Some);
        }
        to(field, name).map(Some)
    };
    let [lat, lng, ts, speed, heading, alt, acc, seq] = [
        at("lat")?,
        at("lng")?,
        at("ts")?,
        at("speed")?,
        at("heading")?,
        at("alt")?,
        at("acc")?,
        at("seq")?,
    ];
    for (n, field) in hemisphere_fields.into_iter().enumerate() {
        more.hemispheres[n] = given(field).map(|at| to(field, at)).transpose()?;
    }
    if more.date.is_some() && more.local.is_none() {
        more.local = Some(Arc::default());
    }
    Ok(Fields {
        points: None,
        lat: lat.context("lat")?,
        lng: lng.context("lng")?,
        ts: ts.map(|pointer| (pointer, time_unit)),
        speed: speed.map(|pointer| speed_unit().map(|factor| (pointer, factor))).transpose()?,
        heading,
        alt: alt.map(|pointer| (pointer, args.alt_unit.unwrap_or(1.0))),
        acc,
        seq,
        driver: None,
        more: Some(Box::new(more)),
    })
}

/// Returns the place of the driver's id, the filter of the source, and the topic.
fn driver(
    file: &FileInfo<'_>,
    own: Option<Pointer>,
    args: &ImportArgs,
) -> Result<(Driver, &'static str, String)> {
    let FileInfo { kind, path, columns, .. } = *file;
    let id_or_pointer = match (&args.driver, own) {
        (Some(given), _) => {
            let has_name = path != Path::new("-") || !given.contains("{file}");
            ensure!(has_name, "--driver {given}: standard input has no name: give an id");
            given.replace("{file}", &path.file_stem().unwrap_or_default().to_string_lossy())
        }
        (None, Some(pointer)) => pointer.as_str().to_owned(),
        (None, None) if kind == Kind::Csv && columns.iter().any(|column| column == "driver_id") => {
            "/driver_id".to_owned()
        }
        (None, None) => bail!("it does not name the driver: give --driver"),
    };
    if id_or_pointer.starts_with('/') {
        ensure!(
            !kind.uses_gpx_names(),
            "--driver {id_or_pointer}: a file of this kind names no driver: give an id, or {{file}}"
        );
        let pointer = Pointer::new(&id_or_pointer).map_err(|why| anyhow!("--driver {why}"))?;
        if kind == Kind::Csv {
            let count = columns.iter().filter(|column| pointer_to(column) == id_or_pointer).count();
            ensure!(
                count > 0,
                "--driver {id_or_pointer}: the file has no such column, only {}",
                columns.join(", ")
            );
            let name = id_or_pointer.trim_start_matches('/');
            ensure!(count == 1, "two columns are named {name}: rename one");
        }
        return Ok((Driver::Payload(pointer), "import", "import".to_owned()));
    }
    ensure!(DriverId::new(&id_or_pointer).is_ok(), "--driver {id_or_pointer:?}: {DRIVER_ID_RULE}");
    Ok((Driver::Topic(Template::first()), TOPIC, TOPIC.replace('+', &id_or_pointer)))
}

/// Returns the plan of an OwnTracks Recorder file, `rec/USER/DEVICE/YYYY-MM.rec`. The configuration
/// derives the driver from the topic `owntracks/USER/DEVICE`.
fn owntracks(path: &Path, configured: &[Source]) -> Result<Plan> {
    let folders = path.parent().into_iter().flat_map(Path::iter);
    let folders: Vec<_> = folders.map(|folder| folder.to_string_lossy()).collect();
    let [.., user, device] = &folders[..] else {
        bail!(
            "it is not in the folders USER/DEVICE of a Recorder, which name the driver: give --driver"
        );
    };
    let topic = format!("owntracks/{user}/{device}");
    ensure!(
        configured.iter().any(|source| source.takes(&topic)),
        "no configured source matches the topic {topic}, which names the driver: give --driver"
    );
    let (numbers, checks) = (Vec::new(), RowChecks::default());
    let (read, unread) = (Vec::new(), Vec::new());
    Ok(Plan { sources: configured.to_vec(), topic, numbers, checks, read, unread })
}
