//! Plans how a file is decoded: with the same rules as messages, and with the file's own names and
//! units.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::args::{ImportArgs, Kind};
use super::columns;
use super::described::describe_fields;
use super::fields::{fields_by_names, fields_of_columns, pointer_to};
use super::hemispheres::{SignedColumn, UnreadHemispheres};
use super::name_units::check_time_scale;
use super::names::Column;
use super::numbers::{NumberColumns, without_fraction};
use super::other_clocks::{Offsets, OtherClocks, ShortClock};
use super::progress::Configuration;
use super::row_checks::{Meridiems, RowChecks};
use super::zones::{ZoneCheck, is_unit, is_utc};
use milepost_config::Config;
use milepost_decode::attributes::ATTRIBUTES_MAX;
use milepost_decode::formats::{Degrees, FIELDS, Format, Mapping, shipped};
use milepost_decode::position::{DRIVER_ID_RULE, DriverId};
use milepost_decode::{Driver, Keep, Pointer, Source, SpeedUnit, Template, Zone};

/// Error for a file whose speeds have no known unit.
const NO_SPEED_UNIT: &str = "it does not state the unit of its speeds: give --speed-unit";

/// The topic filter of a file with one driver: `+` stands for the driver's id. If the file names
/// the driver of each fix, the topic is `import` instead.
const TOPIC: &str = "import/+";

/// The sources and columns with which a file is decoded.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) sources: Vec<Source>,
    pub(super) topic: String,
    /// The CSV columns that hold numbers.
    pub(super) numbers: NumberColumns,
    /// Checks that each row of a CSV file must pass.
    pub(super) checks: RowChecks,
    /// Description of each field that is read: its name, place and unit.
    pub(super) read: Vec<String>,
    /// The CSV columns that are not read.
    pub(super) unread: Vec<String>,
    /// Description of the settings of the configuration that decide how the file is read.
    pub(super) configuration: Configuration,
}

/// Facts about a file that are known before it is imported: its kind, its path, and the first rows
/// of a CSV file.
pub(super) struct FileInfo<'f> {
    pub(super) kind: Kind,
    pub(super) path: &'f Path,
    /// Column names of a CSV file; `sample` holds the first value of each column.
    pub(super) columns: &'f [String],
    /// The comments above the names of the columns.
    pub(super) comments: &'f [String],
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
    let format_name = args.format_name();
    // Refuse options for fields and units: a Recorder file has its own.
    if kind == Kind::OwnTracks {
        let unused = unused_option(args, None).filter(|option| *option != "--speed-unit");
        ensure!(
            unused.is_none(),
            "leave out {}: the fields and units of a Recorder file are fixed",
            unused.unwrap_or_default()
        );
        let (has_fields, has_unit) = (!args.fields.is_empty(), args.speed_unit.is_some());
        ensure!(
            !has_fields && !has_unit,
            "leave out --field and --speed-unit: the fields and units of a Recorder file are fixed"
        );
        ensure!(args.zone.is_none(), "leave out --zone: the times of a Recorder file need no zone");
    }
    // Without --driver, a Recorder file is decoded like the messages of its topic.
    if kind == Kind::OwnTracks && args.driver.is_none() {
        ensure!(
            args.keep.is_empty(),
            "leave out --keep, since `keep` of the configured source applies; or give --driver"
        );
        let other = format_name.filter(|name| *name != "owntracks");
        ensure!(
            other.is_none(),
            "leave out --format {}, since the format of the configured source applies; or give \
             --driver",
            other.map_or("", String::as_str)
        );
        return owntracks(path, &config.sources);
    }
    // The mapping of `--format NAME`, or of OwnTracks. For other files, the names in the file and
    // the options decide, see `format` below.
    let mapping = match (format_name, kind) {
        (Some(name), _) => {
            ensure!(
                args.fields.is_empty(),
                "--field and --format {name} both say where the fields are: give only one of them"
            );
            let mapping = format_named(name, config, args)?;
            // A shipped format leaves its unit of speed to the source. A file has no source, so
            // accept `--speed-unit` with such a format.
            let unused = unused_option(args, Some(&mapping))
                .filter(|option| *option != "--speed-unit" || !needs_speed_unit(name, config));
            ensure!(
                unused.is_none(),
                "{} and --format {name} both say how to read the fields: change [formats.{name}], \
                 or leave out --format",
                unused.unwrap_or_default()
            );
            Some(mapping)
        }
        (None, Kind::OwnTracks) => {
            Some(Arc::new(shipped("owntracks", None).expect("owntracks is a shipped format")))
        }
        (None, _) => None,
    };
    let own_driver = mapping.as_ref().and_then(|mapping| mapping.driver().cloned());
    let (driver, filter, topic) = driver(file, own_driver, args)?;
    let speed_unit = || {
        let default_unit = kind.uses_gpx_names().then_some(1.0);
        args.speed_unit.or(default_unit).context(NO_SPEED_UNIT)
    };
    // Paths of the values from which ClickHouse computes the columns of `[fields.NAME]`.
    let fields = config.clickhouse.fields.iter();
    let computed_from: Vec<String> = fields.flat_map(|field| field.from.clone()).collect();
    let configured = format_name.and_then(|name| config.formats.get(name));
    let reading = configured.map(|mapping| mapping.stable_description());
    let configuration = Configuration::new(reading, computed_from.clone());
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    let (mut numbers, mut checks) = (NumberColumns::default(), RowChecks::default());
    let format = match (mapping, kind) {
        (Some(mapping), Kind::Csv) => {
            let found = columns_of_mapping(columns, &mapping);
            let name = format_name.map_or("", String::as_str);
            let format = FormatSettings::new(name, &mapping);
            checks = row_checks(file, &found, args, Some(&format))?;
            numbers.fields = number_columns(&found);
            Format::Mapped(mapping)
        }
        (Some(mapping), _) => Format::Mapped(mapping),
        (None, Kind::GeoJson | Kind::GeoJsonLines) if uses_default_fields(args) => Format::GeoJson(
            named_speed_unit(speed_unit()?)
                .context("--speed-unit: must be m/s, km/h, mph or knots unless you give --field")?,
        ),
        (None, Kind::Csv) => {
            let (sample, rows) = (file.sample, file.rows);
            let found = columns::find(columns, sample, rows, &args.fields)?;
            checks = row_checks(file, &found, args, None)?;
            let kept: Vec<String> = args.keep.iter().chain(&computed_from).cloned().collect();
            unread = columns::unread(
                columns,
                sample,
                &found,
                &kept,
                driver_pointer(&driver).trim_start_matches('/'),
            );
            numbers.fields = number_columns(&found);
            let fields = fields_of_columns(&found, columns, sample, args, speed_unit, &mut read)?;
            Format::Mapped(Arc::new(Mapping::new(fields)))
        }
        (None, _) => {
            let fields = fields_by_names(kind, args, speed_unit)?;
            read = describe_fields(kind, args, fields.speed.as_ref().map(|(_, factor)| *factor));
            let mapping = match kind {
                Kind::GeoJson | Kind::GeoJsonLines => Mapping::of_features(fields),
                Kind::Gpx
                | Kind::Tcx
                | Kind::Kml
                | Kind::Timeline
                | Kind::Csv
                | Kind::OwnTracks => Mapping::new(fields),
            };
            Format::Mapped(Arc::new(mapping))
        }
    };
    numbers.ids = column_of_ids(file, &driver);
    let keep = Keep::of_names(&args.keep).map_err(|why| anyhow!("--keep: {why}"))?;
    if let (Kind::Csv, Keep::Named(names)) = (kind, &keep) {
        let count_of = |name: &String| columns.iter().filter(|column| *column == name).count();
        if let Some(missing) = names.iter().find(|name| count_of(name) == 0) {
            bail!("--keep {missing}: the file has no such column");
        }
        if let Some(twice) = names.iter().find(|name| count_of(name) > 1) {
            bail!("two columns are named {twice}: rename one");
        }
    }
    let mut source =
        Source::new(filter, driver, format, keep).keeping(&computed_from).map_err(|count| {
            anyhow!(
                "--keep: there are {count} names with those of [fields.NAME]; the limit is \
                 {ATTRIBUTES_MAX}"
            )
        })?;
    if let Some(zone) = &args.zone {
        source = source.in_zone(zone.clone());
    }
    Ok(Plan { sources: vec![source], topic, numbers, checks, read, unread, configuration })
}

/// Returns the columns that a format of the configuration reads, the coordinates first.
fn columns_of_mapping(columns: &[String], mapping: &Mapping) -> Vec<(&'static str, Column)> {
    let fields = mapping.fields();
    let more = fields.more.as_deref();
    let hemisphere = |n: usize| more.and_then(|more| more.hemispheres[n].as_ref());
    let date = more.and_then(|more| more.date.as_ref());
    let pointers = FIELDS.into_iter().zip(fields.pointers()).chain([
        ("lat_hemisphere", hemisphere(0)),
        ("lng_hemisphere", hemisphere(1)),
        ("date", date),
    ]);
    let found = pointers.filter_map(|(field, pointer)| {
        let pointer = pointer?;
        let at = columns.iter().position(|name| pointer_to(name) == pointer.as_str())?;
        Some((field, Column { at, unit: None }))
    });
    found.collect()
}

/// Settings of a format of the configuration, besides the places of its fields.
struct FormatSettings<'f> {
    name: &'f str,
    /// For lat and lng: whether the unit negates numbers without a sign, as `-1 deg` does.
    are_negative: [bool; 2],
    zone: Option<Zone>,
    pattern: Option<String>,
}

impl<'f> FormatSettings<'f> {
    fn new(name: &'f str, mapping: &Mapping) -> Self {
        let more = mapping.fields().more.as_deref();
        let local = more.and_then(|more| more.local.as_deref());
        let are_negative =
            more.map_or([false; 2], |more| more.degrees.map(|unit| unit != unit.unsigned()));
        Self {
            name,
            are_negative,
            zone: local.and_then(|local| local.zone.clone()),
            pattern: local.and_then(|local| local.pattern.clone()),
        }
    }
}

/// Returns the checks of the rows of a CSV file. `format`: the format of the configuration that
/// says where the fields are.
///
/// # Errors
/// One of the first rows fails a check.
fn row_checks(
    file: &FileInfo<'_>,
    found: &[(&'static str, Column)],
    args: &ImportArgs,
    format: Option<&FormatSettings<'_>>,
) -> Result<RowChecks> {
    let FileInfo { columns, comments, sample, rows, .. } = *file;
    // With `--zone` or `--unit ts`, the operator has decided how the times are read. Otherwise
    // check that the file does not state a scale of time other than UTC.
    if args.zone.is_none()
        && args.unit_of("ts").is_none()
        && let Some((_, column)) = found.iter().find(|(field, _)| *field == "ts")
    {
        let value = rows.first().and_then(|row| row.get(column.at)).map(String::as_str);
        let unit = value.filter(|value| is_unit(value));
        check_time_scale(&columns[column.at], unit, comments)?;
    }
    let unit_of = |field: &'static str| {
        let is_negative = |format: &FormatSettings<'_>| {
            let [lat, lng] = format.are_negative;
            field == "lat" && lat || field == "lng" && lng
        };
        let configured = format.filter(|format| is_negative(format)).map(|_| "-1 deg");
        args.unit_of(field).or(configured)
    };
    let coordinates = found.iter().filter(|(field, _)| matches!(*field, "lat" | "lng"));
    let signed = coordinates.filter_map(|(field, column)| {
        let first_value = sample.get(column.at).map_or("", String::as_str);
        let name_and_value = (&*columns[column.at], first_value);
        SignedColumn::new((field, column.at), name_and_value, (unit_of(field), column.unit))
    });
    let pattern = format.and_then(|format| format.pattern.as_deref());
    let time_unit = args.unit_of("ts").or(pattern);
    // A format may state UTC for all its files. Ignore this here: a file with a column that states
    // another zone must still fail the check.
    let zone = args.zone.as_ref();
    let configured_zone = format.and_then(|format| format.zone.as_ref());
    let other_zone = configured_zone.filter(|zone| !is_utc(zone.name()));
    let zone = zone.or(other_zone);
    let other_clocks = || {
        // `--field` and a format say which column has the times.
        let is_chosen = format.is_some() || args.fields.iter().any(|(field, _)| field == "ts");
        let utc = if is_chosen { None } else { columns::column_in_utc(columns).ok().flatten() };
        let pattern = time_unit.filter(|unit| unit.contains('%'));
        OtherClocks::new(columns, rows, found, pattern, utc.map(|utc| utc.at))
    };
    let mut checks = RowChecks {
        format: format.map(|format| format.name.to_owned()),
        split_degrees: Vec::new(),
        short_clock: None,
        other_clocks: if zone.is_none() { other_clocks() } else { None },
        offsets: if zone.is_none() && time_unit.is_none() { Offsets::new(found) } else { None },
        zones: ZoneCheck::new(columns, comments, rows, found, time_unit, zone),
        meridiems: Meridiems::new(columns, rows, found),
        signed: signed.collect(),
        hemispheres: UnreadHemispheres::new(columns, rows, found, [unit_of("lat"), unit_of("lng")]),
    };
    let value = |row: &'_ Vec<String>, at: usize| row.get(at).cloned().unwrap_or_default().into();
    if let Some(why) = rows.iter().find_map(|row| checks.fault(|at| value(row, at))) {
        bail!("{why}");
    }
    // Add these two checks only now, so that the first rows cannot fail them. These checks must
    // reject single rows, and never refuse the whole file: the name of a column does not prove that
    // the column holds minutes, and rows without a fix may have the time 0.
    checks.split_degrees = columns::split_degrees(columns, rows, found);
    checks.short_clock = ShortClock::new(columns, rows, found, time_unit);
    Ok(checks)
}

/// Returns the columns of the fields that are numbers, those of lat and lng first.
fn number_columns(found: &[(&'static str, Column)]) -> Vec<usize> {
    let numbers = found.iter().filter(|(field, _)| !is_text(field));
    numbers.map(|(_, column)| column.at).collect()
}

/// Returns the column of the driver's ids, if all of its first values are whole numbers with `.0`
/// at the end, as pandas writes them.
fn column_of_ids(file: &FileInfo<'_>, driver: &Driver) -> Option<usize> {
    let name = driver_pointer(driver);
    let at = file.columns.iter().position(|column| pointer_to(column) == name)?;
    let mut ids = file.rows.iter().filter_map(|row| row.get(at)).filter(|id| !id.is_empty());
    let mut is_any = false;
    let are_whole = ids.all(|id| {
        is_any = true;
        without_fraction(id) != id
    });
    (are_whole && is_any).then_some(at)
}

/// Returns the unit of speed with this factor, in m/s.
fn named_speed_unit(metres_per_second: f64) -> Option<SpeedUnit> {
    let units = SpeedUnit::NAMES.map(|(_, unit)| unit);
    units.into_iter().find(|unit| unit.metres_per_second() == metres_per_second)
}

/// Returns whether no argument changes the names or units of GeoJSON's fields.
fn uses_default_fields(args: &ImportArgs) -> bool {
    let ImportArgs { fields, units, unknown, alt_unit, .. } = args;
    fields.is_empty() && units.is_empty() && unknown.is_empty() && alt_unit.is_none()
}

/// Returns whether the values of a field are strings, in which a comma is no decimal comma.
fn is_text(field: &str) -> bool {
    matches!(field, "ts" | "date" | "seq") || field.ends_with("_hemisphere")
}

/// Returns the first option that has no effect on this file. Options for units and unknown values
/// apply only to fields that are found by their names. `--unit lat=deg` is an exception if the
/// mapping reads degrees, because this option also says that the numbers have a sign.
fn unused_option(args: &ImportArgs, mapping: Option<&Mapping>) -> Option<&'static str> {
    let ImportArgs { units, unknown, speed_unit, alt_unit, .. } = args;
    let reads_degrees = |field: &str| {
        let more = mapping.map(|mapping| mapping.fields().more.as_deref());
        let index = ["lat", "lng"].iter().position(|name| *name == field);
        index.zip(more).is_some_and(|(index, more)| {
            more.is_none_or(|more| more.degrees[index] == Degrees::Factor(1.0))
        })
    };
    let has_unit = units.iter().any(|(field, unit)| unit != "deg" || !reads_degrees(field));
    let options = [
        (has_unit, "--unit"),
        (!unknown.is_empty(), "--unknown"),
        (alt_unit.is_some(), "--alt-unit"),
        (speed_unit.is_some(), "--speed-unit"),
    ];
    options.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
}

/// Returns whether a format that milepost ships leaves the unit of its speeds to the source.
fn needs_speed_unit(name: &str, config: &Config) -> bool {
    let has_speed =
        |unit| shipped(name, unit).is_some_and(|format| format.fields().speed.is_some());
    !config.formats.contains_key(name)
        && has_speed(Some(SpeedUnit::MetresPerSecond))
        && !has_speed(None)
}

/// Returns a format of the configuration, or one that milepost ships.
fn format_named(name: &str, config: &Config, args: &ImportArgs) -> Result<Arc<Mapping>> {
    if let Some(mapping) = config.formats.get(name) {
        return Ok(Arc::clone(mapping));
    }
    let unit = if needs_speed_unit(name, config) {
        let factor = args.speed_unit.context(NO_SPEED_UNIT)?;
        Some(
            named_speed_unit(factor)
                .context("--speed-unit: must be m/s, km/h, mph or knots for this format")?,
        )
    } else {
        None
    };
    if let Some(mapping) = shipped(name, unit) {
        return Ok(Arc::new(mapping));
    }
    let own: Vec<&str> = config.formats.keys().map(String::as_str).collect();
    bail!(
        "--format {name}: must be one of gpx, tcx, kml, geojson, geojsonl, timeline, csv and rec, \
         or a format that says where the fields are; {}",
        if own.is_empty() {
            "the configuration has no [formats.NAME]".to_owned()
        } else {
            format!("the configuration has {}", own.join(", "))
        }
    )
}

/// Returns the pointer of the driver's id; an empty string if there is none.
fn driver_pointer(driver: &Driver) -> String {
    match driver {
        Driver::Payload(pointer) => pointer.as_str().to_owned(),
        Driver::Topic(_) => String::new(),
    }
}

/// Returns the place of the driver's id, the filter of the source, and the topic. `own`: the
/// pointer to the id that the mapping defines, if any.
fn driver(
    file: &FileInfo<'_>,
    own: Option<Pointer>,
    args: &ImportArgs,
) -> Result<(Driver, &'static str, String)> {
    let FileInfo { kind, path, columns, .. } = *file;
    let id_or_pointer = match (&args.driver, own) {
        (Some(given), _) => {
            // Paths of pipes, such as `/dev/fd/63`, are not names of files.
            let unnamed = ["-", "/dev/stdin", "/dev/fd", "/proc/self/fd"];
            let has_name = !unnamed.iter().any(|name| path.starts_with(name));
            ensure!(
                has_name || !given.contains("{file}"),
                "--driver {given}: standard input has no name, nor has a pipe such as /dev/fd/63: give \
                 an id"
            );
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
            "it is not in the folders USER/DEVICE of a Recorder, which name the driver: give \
             --driver"
        );
    };
    let topic = format!("owntracks/{user}/{device}");
    let source = configured.iter().find(|source| source.takes(&topic)).with_context(|| {
        format!(
            "no configured source matches the topic {topic}, which names the driver: give --driver"
        )
    })?;
    let configuration =
        Configuration::new(Some(source.stable_description()), source.kept().to_vec());
    let (numbers, checks) = (NumberColumns::default(), RowChecks::default());
    let (read, unread) = (Vec::new(), Vec::new());
    Ok(Plan { sources: configured.to_vec(), topic, numbers, checks, read, unread, configuration })
}
