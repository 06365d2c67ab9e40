//! Describes where the fields of a file are read from and in which units, for the kinds of files
//! that define the names of their fields.

use milepost_decode::Zone;

use super::orders::{ImportArgs, Kind};

/// Fields, and the elements or members that have them.
type Described = (&'static [&'static str], &'static str);

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

/// Returns where the reader finds the fields without `--field`.
const fn usual(kind: Kind) -> &'static [Described] {
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
        // The properties have many names; the list of unread names shows which of them are missing.
        Kind::GeoJson | Kind::GeoJsonLines => &[(&["lng", "lat", "alt"], "geometry/coordinates")],
        Kind::Csv | Kind::OwnTracks => &[],
    }
}

/// Returns each field with its place and its unit. `metres_per_second`: the size of the file's unit
/// of speed.
pub(super) fn described(
    kind: Kind,
    args: &ImportArgs,
    metres_per_second: Option<f64>,
) -> Vec<String> {
    let given = |field: &str| {
        args.fields.iter().rev().find(|(known, _)| known == field).map(|(_, at)| at.as_str())
    };
    let unit = |field: &str| unit(field, kind, args, metres_per_second);
    let mut parts: Vec<(Vec<&str>, &str, String)> = Vec::new();
    for (fields, at) in usual(kind) {
        for field in fields.iter().filter(|field| given(field).is_none()) {
            let unit = unit(field);
            match parts.last_mut().filter(|(_, last, known)| last == at && *known == unit) {
                Some((fields, ..)) => fields.push(field),
                None => parts.push((vec![field], at, unit)),
            }
        }
    }
    for field in FIELDS {
        parts.extend(given(field).map(|at| (vec![field], at, unit(field))));
    }
    let shown = parts.into_iter().map(|(fields, at, unit)| {
        let unit = if unit.is_empty() { unit } else { format!(" ({unit})") };
        format!("{} = {at}{unit}", fields.join(", "))
    });
    shown.collect()
}

/// Returns the unit of a field; empty if it is milepost's own.
fn unit(field: &str, kind: Kind, args: &ImportArgs, metres_per_second: Option<f64>) -> String {
    let stated = |unit: f64, name: &str| format!("1 = {} {name}", (unit * 1e6).round() / 1e6);
    let given = |field: &str| args.unit_of(field).map(str::to_owned);
    let unit = match field {
        "speed" => metres_per_second.map(|unit| stated(unit, "m/s")),
        "alt" => args.alt_unit.map(|unit| stated(unit, "m")),
        "lng" => given("lng").or_else(|| {
            let of_lat = given("lat")?;
            Some(of_lat.trim_start_matches(['-', '+']).to_owned())
        }),
        "ts" => {
            let usual = (kind == Kind::Gpx).then_some("Z");
            let zone = args.zone.as_ref().map(Zone::name).or(usual);
            let zone = zone.map(|zone| format!("without an offset: {zone}"));
            let parts: Vec<String> = given("ts").into_iter().chain(zone).collect();
            (!parts.is_empty()).then(|| parts.join("; "))
        }
        _ => given(field),
    };
    unit.unwrap_or_default()
}
