//! Describes the place and the unit of each field that `import` reads, for kinds of files that
//! define the names of their fields.

use milepost_decode::Zone;

use super::args::{ImportArgs, Kind};

/// Fields, and the name of the element or member that holds them.
type FieldsAt = (&'static [&'static str], &'static str);

/// The fields in the order of the summary.
const FIELDS: [&str; 10] = [
    "lat",
    "lng",
    "lat_hemisphere",
    "lng_hemisphere",
    "ts",
    "speed",
    "heading",
    "alt",
    "acc",
    "seq",
];

/// Returns the default places of the fields. `--field` overrides them.
const fn default_places(kind: Kind) -> &'static [FieldsAt] {
    match kind {
        Kind::Gpx => &[
            (&["lat", "lng"], "trkpt"),
            (&["ts"], "time"),
            (&["alt"], "ele"),
            (&["speed"], "speed"),
            (&["heading"], "course"),
        ],
        Kind::Tcx => &[
            (&["lat", "lng"], "Position"),
            (&["ts"], "Time"),
            (&["alt"], "AltitudeMeters"),
            (&["speed"], "Speed"),
        ],
        Kind::Kml => &[(&["lat", "lng", "alt"], "gx:coord or Point"), (&["ts"], "when")],
        Kind::Timeline => &[
            (&["lat", "lng"], "timelinePath, position of rawSignals, locations, simplifiedRawPath"),
            (&["ts"], "time, timestamp, startTime + minutes"),
            (&["speed"], "velocity, speedMetersPerSecond"),
            (&["heading"], "heading"),
            (&["alt"], "altitude, altitudeMeters"),
            (&["acc"], "accuracy, accuracyMeters"),
        ],
        // Properties have no standard names, so this table has none. The list of unread names shows
        // which properties are not read.
        Kind::GeoJson | Kind::GeoJsonLines => &[(&["lng", "lat", "alt"], "geometry/coordinates")],
        Kind::Csv | Kind::OwnTracks => &[],
    }
}

/// Returns a description of each field: its name, place and unit. `metres_per_second`: the file's
/// unit of speed, in m/s.
pub(super) fn describe_fields(
    kind: Kind,
    args: &ImportArgs,
    metres_per_second: Option<f64>,
) -> Vec<String> {
    let given = |field: &str| {
        args.fields.iter().rev().find(|(name, _)| name == field).map(|(_, at)| at.as_str())
    };
    let unit = |field: &str| unit(field, kind, args, metres_per_second);
    let mut parts: Vec<(Vec<&str>, &str, String)> = Vec::new();
    for (fields, at) in default_places(kind) {
        for field in fields.iter().filter(|field| given(field).is_none()) {
            let unit = unit(field);
            match parts
                .last_mut()
                .filter(|(_, last_at, last_unit)| last_at == at && *last_unit == unit)
            {
                Some((fields, ..)) => fields.push(field),
                None => parts.push((vec![field], at, unit)),
            }
        }
    }
    for field in FIELDS {
        parts.extend(given(field).map(|at| (vec![field], at, unit(field))));
    }
    let descriptions = parts.into_iter().map(|(fields, at, unit)| {
        let unit = if unit.is_empty() { unit } else { format!(" ({unit})") };
        format!("{} = {at}{unit}", fields.join(", "))
    });
    descriptions.collect()
}

/// Returns the unit of a field; an empty string if it is the unit that milepost stores.
fn unit(field: &str, kind: Kind, args: &ImportArgs, metres_per_second: Option<f64>) -> String {
    let stated = |unit: f64, name: &str| format!("1 = {} {name}", (unit * 1e6).round() / 1e6);
    let given = |field: &str| args.unit_of(field).map(str::to_owned);
    let unit = match field {
        "speed" => metres_per_second.map(|unit| stated(unit, "m/s")),
        "alt" => args.alt_unit.map(|unit| stated(unit, "m")),
        "lng" => given("lng").or_else(|| {
            let lat_unit = given("lat")?;
            Some(lat_unit.trim_start_matches(['-', '+']).to_owned())
        }),
        "ts" => {
            let default_zone = (kind == Kind::Gpx).then_some("Z");
            let zone = args.zone.as_ref().map(Zone::name).or(default_zone);
            let zone = zone.map(|zone| format!("without an offset: {zone}"));
            let parts: Vec<String> = given("ts").into_iter().chain(zone).collect();
            (!parts.is_empty()).then(|| parts.join("; "))
        }
        _ => given(field),
    };
    unit.unwrap_or_default()
}
