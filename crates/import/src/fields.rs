//! Builds the mapping of a file: the pointers and units of its fields, and the zone of its times.
//! The arguments determine them. Where no argument does, the names in the file or its kind do.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};

use super::args::{ImportArgs, Kind};
use super::columns;
use super::encodings;
use super::name_units::{check_name, check_row_of_units};
use super::names::{Column, is_name_of, normalised, quantity_of};
use super::xml::{GPX_TIME, gpx_name};
use milepost_decode::formats::{Degrees, Fields, More};
use milepost_decode::{Local, PatternZone, Pointer, Quantity, TimeUnit, Zone};

/// The fields of a fix, each with its JSON pointer in GPX and in GeoJSON; an empty pointer if the
/// format has no such field. `speed` (m/s) and `course` (degrees) are elements of GPX 1.0, and of
/// extensions to GPX 1.1.
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

/// Explains that a CSV file has no column of a required field.
fn explain_missing(field: &str, columns: &[String], sample: &[String]) -> String {
    let names: Vec<String> = columns.iter().map(|name| format!("{name:.40}")).collect();
    let all = names.join(", ");
    let is_value = |name: &String| name.parse::<f64>().is_ok();
    let find_position_column = || {
        let kinds = columns.iter().zip(sample).filter_map(|(name, value)| {
            place_kind(value).map(|(kind, advice)| (name, kind, advice))
        });
        // Prefer a column with WKT or WKB to a column with two numbers.
        kinds.min_by_key(|(.., advice)| *advice == SPLIT_ADVICE)
    };
    let is_place = matches!(field, "lat" | "lng");
    if let (true, Some((name, kind, advice))) =
        (is_place && columns.len() > 1, find_position_column())
    {
        return format!("it has no column {field}, but its column {name} has {kind}: {advice}");
    }
    let has = |word: &str| columns.iter().any(|name| normalised(name).ends_with(word));
    if is_place && has("easting") && has("northing") {
        return format!(
            "it has no column {field}, but it has eastings and northings, which are metres of a \
             projection: convert them to latitude and longitude in WGS 84, EPSG:4326"
        );
    }
    if let Some(advice) = encodings::advice(columns) {
        return format!("it has no column {field}, only {all}: {advice}");
    }
    if columns.len() == 1 || columns.iter().any(is_value) {
        return format!(
            "it has no column {field}, only {all}: the first row must name the columns, separated \
             by ',' ';' '|' or tabs; delete the lines above it"
        );
    }
    if field == "ts" && columns::has_split_date(columns) {
        return format!(
            "it has no column ts, only {all}: if its time is in several columns, join them in one, \
             such as 2026-01-31 08:00:00"
        );
    }
    // The other required fields may have unknown names, too.
    let is_missing =
        |other: &&str| *other == field || !columns.iter().any(|name| is_name_of(other, name));
    let option = |field: &str| {
        let date_and_time = columns::date_and_time(columns, sample).filter(|_| field == "ts");
        let name = date_and_time.map(|(date, time)| format!("{date}+{time}"));
        let name = name.or_else(|| columns::similar_column(columns, field).map(str::to_owned));
        name.map(|name| format!("--field {field}={}", quoted(&name)))
    };
    let options: Vec<String> = match option(field) {
        Some(_) => ["lat", "lng", "ts"].into_iter().filter(is_missing).filter_map(option).collect(),
        None => vec![format!("--field {field}=COLUMN")],
    };
    format!("it has no column {field}, only {all}: give {}", options.join(" "))
}

/// Advice for a column that holds both coordinates as numbers.
const SPLIT_ADVICE: &str = "split it into two columns";

/// Recognises a value that holds both coordinates. Returns what the value is, and how to convert
/// it.
fn place_kind(value: &str) -> Option<(&'static str, &'static str)> {
    const WKT: &str = "export the points as columns lat and lng, in PostGIS with ST_Y(geom) and \
                       ST_X(geom)";
    let upper = value.trim().to_ascii_uppercase();
    if upper.starts_with("POINT") || upper.starts_with("SRID=") {
        return Some(("a place as WKT", WKT));
    }
    let is_hex = |c: char| c.is_ascii_hexdigit();
    if (upper.starts_with("0101") || upper.starts_with("00000000"))
        && upper.len() >= 42
        && upper.chars().all(is_hex)
    {
        return Some(("a place as WKB", WKT));
    }
    let inner = value.trim().trim_matches(['(', ')', '[', ']', '"', ' ']);
    let is_separator = |c: char| c == ',' || c == ';' || c.is_whitespace();
    let parts: Vec<&str> = inner.split(is_separator).filter(|part| !part.is_empty()).collect();
    let is_degrees = |part: &&str| {
        part.contains('.') && part.parse::<f64>().is_ok_and(|number| number.abs() <= 180.0)
    };
    (parts.len() == 2 && parts.iter().all(is_degrees)).then_some(("both coordinates", SPLIT_ADVICE))
}

/// Returns a name in quotes for a shell.
fn quoted(name: &str) -> String {
    format!("'{}'", name.replace('\'', "'\\''"))
}

/// Returns the mapping of a CSV file, and appends a description of each field to `descriptions`.
/// `found`: the column of each field. `speed_unit`: returns the factor that converts the file's
/// speeds to m/s, for a file in which neither the option nor the column states their unit.
pub(super) fn fields_of_columns(
    found: &[(&'static str, Column)],
    columns: &[String],
    sample: &[String],
    args: &ImportArgs,
    speed_unit: impl Fn() -> Result<f64>,
    descriptions: &mut Vec<String>,
) -> Result<Fields> {
    let (mut more, time_unit) = common_options(args, Some(Zone::utc()))?;
    let column_of =
        |field: &str| found.iter().find(|(name, _)| *name == field).map(|(_, column)| column);
    let pointer_of = |field: &str| {
        column_of(field).map(|column| pointer(field, &pointer_to(&columns[column.at]))).transpose()
    };
    if let (Some(lat), Some(lng)) = (column_of("lat"), column_of("lng"))
        && lat.at == lng.at
    {
        let name = &columns[lat.at];
        let kind = sample.get(lat.at).and_then(|value| place_kind(value));
        let advice = kind.map_or(SPLIT_ADVICE, |(_, advice)| advice);
        bail!("lat and lng are the same column {name}, and each needs its own: {advice}");
    }
    let required = |field: &str| {
        pointer_of(field)?.ok_or_else(|| anyhow!("{}", explain_missing(field, columns, sample)))
    };
    more.hemispheres = [pointer_of("lat_hemisphere")?, pointer_of("lng_hemisphere")?];
    more.date = pointer_of("date")?;
    for (n, field) in ["lat", "lng"].into_iter().enumerate() {
        let stated = column_of(field).and_then(|column| column.unit);
        let option = args.unit_of(field).or(args.unit_of("lat"));
        if let (Some(unit), None) = (stated, option) {
            more.degrees[n] = Degrees::new(unit).map_err(|why| anyhow!(why))?;
        }
    }
    for (field, column) in found {
        if let Some(quantity) = quantity_of(field) {
            let unit_factor = args.unit_of(field).and_then(|unit| quantity.factor(unit).ok());
            // `has_option`: an option states the unit of the field. `option_factor`: the factor of
            // this unit; always `None` for lat, lng and heading.
            let (option_factor, has_option) = match *field {
                "speed" => (args.speed_unit, args.speed_unit.is_some()),
                "alt" => (args.alt_unit, args.alt_unit.is_some()),
                "acc" => (unit_factor, args.unit_of(field).is_some()),
                "lng" => (None, args.unit_of("lng").or(args.unit_of("lat")).is_some()),
                _ => (None, args.unit_of(field).is_some()),
            };
            let value = sample.get(column.at).map_or("", String::as_str);
            let name = &columns[column.at];
            check_name((field, name, value), quantity, has_option, option_factor)?;
            // The decoder converts a value with a unit, such as `36 km/h`, by that unit and not by
            // the option. So the two units may differ.
            let stated = column.unit.filter(|_| quantity.unit_after_number(value).is_none());
            let factor = option_factor.or(unit_factor);
            check_row_of_units((field, name, value), quantity, stated, has_option, factor)?;
        }
    }
    let factor = |field: &str, quantity: Quantity, given: Option<f64>| -> Result<Option<f64>> {
        let stated = column_of(field).and_then(|column| column.unit);
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
    let speed = match pointer_of("speed")? {
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
        descriptions.push(format!(
            "{field} = {name}{}",
            unit.map_or(String::new(), |unit| format!(" ({unit})"))
        ));
    }
    for (index, value) in &more.unknown {
        descriptions
            .push(format!("{} {value} means unknown", milepost_decode::formats::FIELDS[*index]));
    }
    Ok(Fields {
        points: None,
        lat: required("lat")?,
        lng: required("lng")?,
        ts: Some((required("ts")?, time_unit)),
        speed,
        heading: pointer_of("heading")?,
        alt: pointer_of("alt")?.map(|pointer| (pointer, alt_factor)),
        acc: pointer_of("acc")?,
        seq: pointer_of("seq")?,
        driver: None,
        has_unit_of_degrees: args.unit_of("lat").is_some(),
        more: Some(Box::new(more)),
    })
}

/// Returns the mapping of a file other than CSV. The file's kind determines the pointer of each
/// field, unless `--field` states another pointer. `speed_unit`: returns the factor that converts
/// the file's speeds to m/s.
pub(super) fn fields_by_names(
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
    let hemisphere_fields = ["lat_hemisphere", "lng_hemisphere"];
    let all = [&FIELDS.map(|(field, ..)| field)[..], &hemisphere_fields[..]].concat();
    if let Some((field, _)) = args.fields.iter().find(|(field, _)| !all.contains(&&**field)) {
        bail!("--field {field}: must be one of {}", all.join(", "));
    }
    let given =
        |field: &str| args.fields.iter().rev().find(|(given, _)| given == field).map(|(_, at)| at);
    let pointer_at = |field: &str, at: &str| {
        // The readers of TCX and KML emit their elements under the names of GPX.
        let is_renamed = matches!(kind, Kind::Tcx | Kind::Kml);
        let at = if is_renamed { gpx_name(at) } else { at };
        let at = if at.starts_with('/') { at.to_owned() } else { pointer_to(at) };
        pointer(field, &at)
    };
    let mut pointer_of = |field: &'static str| -> Result<Option<Pointer>> {
        let (_, gpx, geojson) =
            *FIELDS.iter().find(|(name, ..)| *name == field).expect("FIELDS has every field");
        let default_pointer = match (field, kind) {
            ("acc", Kind::Timeline) => "/accuracy",
            _ if kind.uses_gpx_names() => gpx,
            _ => geojson,
        };
        let Some(name) = given(field) else {
            let is_absent = default_pointer.is_empty();
            return if is_absent { Ok(None) } else { pointer_at(field, default_pointer).map(Some) };
        };
        if let (Some((date, time)), "ts") = (name.split_once('+'), field) {
            more.date = Some(pointer_at("ts", date)?);
            return pointer_at("ts", time).map(Some);
        }
        pointer_at(field, name).map(Some)
    };
    let [lat, lng, ts, speed, heading, alt, acc, seq] = [
        pointer_of("lat")?,
        pointer_of("lng")?,
        pointer_of("ts")?,
        pointer_of("speed")?,
        pointer_of("heading")?,
        pointer_of("alt")?,
        pointer_of("acc")?,
        pointer_of("seq")?,
    ];
    for (n, field) in hemisphere_fields.into_iter().enumerate() {
        more.hemispheres[n] = given(field).map(|at| pointer_at(field, at)).transpose()?;
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
        has_unit_of_degrees: args.unit_of("lat").is_some(),
        more: Some(Box::new(more)),
    })
}

/// Returns the options of the mapping that apply to any kind of file, and the unit of time. Times
/// without a zone are in `default_zone`, unless `--zone` states another.
fn common_options(args: &ImportArgs, default_zone: Option<Zone>) -> Result<(More, TimeUnit)> {
    const FIELDS_WITH_UNIT: [&str; 5] = ["lat", "lng", "ts", "heading", "acc"];
    if let Some((field, _)) =
        args.units.iter().find(|(field, _)| !FIELDS_WITH_UNIT.contains(&&**field))
    {
        bail!(
            "--unit {field}: must be one of {}; for speed and alt give --speed-unit and --alt-unit",
            FIELDS_WITH_UNIT.join(", ")
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
    more.has_unit_of_heading = args.unit_of("heading").is_some();
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
            let named = TimeUnit::NAMES.iter().find(|(name, _)| *name == given);
            unit = named.map(|(_, unit)| *unit).ok_or_else(|| {
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

/// Returns the JSON pointer to the member of this name.
pub(super) fn pointer_to(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Parses the JSON pointer to a field. `field`: its name, for the error.
fn pointer(field: &str, at: &str) -> Result<Pointer> {
    Pointer::new(at).map_err(|why| anyhow!("--field {field}: {why}"))
}
