//! Converts GeoJSON (RFC 7946) to areas for the table `fences`, or to an error message for each
//! invalid one. Closes open rings.
//!
//! Guarantee: a returned area has closed rings that neither cross nor touch themselves, holes
//! inside its outline, and valid degrees. So `fence_visits` can decide for every fix whether the
//! fix is inside. Polygons of one area may overlap: their union counts.

mod geometry;
pub mod hours;
pub(crate) mod import;
pub mod rules;
pub(crate) mod store;

use std::collections::HashMap;

use serde_json::Value;

use self::geometry::{Point, Polygon};
use self::rules::FenceRules;
use milepost_core::encode::Insert;
use milepost_decode::position::Timestamp;
use milepost_decode::rfc3339;
use milepost_decode::row_binary::{FENCES, put_count, put_text};

/// Default start of a fence's validity: 1970-01-01, as in the table.
const VALID_FROM_DEFAULT: Timestamp = Timestamp::from_unix_ms(0);
/// Default end of a fence's validity: 2200-01-01, as in the table.
const VALID_UNTIL_DEFAULT: Timestamp = Timestamp::from_unix_ms(7_258_118_400_000);
/// Range of `valid_from` and `valid_until` in the table, in milliseconds since 1970: the years 1900
/// to 2299.
pub const MOMENTS_MS: std::ops::RangeInclusive<i64> = -2_208_988_800_000..=10_413_791_999_000;
const NAME_BYTES_MAX: usize = 256;

/// An area with a name and a validity. Its key in the table is (name, valid_from).
#[derive(Debug, Clone, PartialEq)]
pub struct Fence {
    pub(crate) name: String,
    pub(crate) valid_from: Timestamp,
    /// End of the validity, exclusive.
    pub(crate) valid_until: Timestamp,
    /// Rings of `[lng, lat]`, each polygon's outline first.
    pub polygons: Vec<Polygon>,
    pub rules: FenceRules,
}

/// The areas of a GeoJSON file, and its errors.
#[derive(Debug, Default, PartialEq)]
pub struct Read {
    pub fences: Vec<Fence>,
    /// One line per error.
    pub invalid: Vec<String>,
    /// Number of features with an error.
    pub invalid_features: usize,
}

/// Reads a FeatureCollection, or a Feature. An invalid feature gives errors and no area.
///
/// # Errors
/// The file is not JSON, or is neither a FeatureCollection nor a Feature.
pub fn read(json: &str) -> Result<Read, String> {
    let file: Value = serde_json::from_str(json).map_err(|error| format!("not JSON: {error}"))?;
    let single;
    let features = match (file["type"].as_str(), file["features"].as_array()) {
        (Some("FeatureCollection"), Some(features)) => features.as_slice(),
        (Some("Feature"), _) => {
            single = [file];
            &single
        }
        (Some("FeatureCollection"), None) => {
            return Err("the FeatureCollection has no array \"features\"".to_owned());
        }
        (kind, _) => {
            let found = kind.map_or("no type".to_owned(), |kind| format!("the type {kind}"));
            return Err(format!("the file has {found}; expected a FeatureCollection or a Feature"));
        }
    };
    let mut read = Read::default();
    let mut indexes = HashMap::new();
    for (index, feature) in features.iter().enumerate() {
        let mut faults = Vec::new();
        if let Some(fence) = fence(feature, &mut faults) {
            match indexes.insert((fence.name.clone(), fence.valid_from.unix_ms()), index) {
                None => read.fences.push(fence),
                Some(earlier) => {
                    faults.push(format!("has the same name and valid_from as feature {earlier}"))
                }
            }
        }
        read.invalid_features += usize::from(!faults.is_empty());
        let name = feature["properties"]["name"]
            .as_str()
            .map(|name| format!(" \"{}\"", name.escape_debug()));
        let name = name.unwrap_or_default();
        read.invalid
            .extend(faults.into_iter().map(|fault| format!("feature {index}{name}: {fault}")));
    }
    Ok(read)
}

/// Reads a feature. Appends all its errors to `faults`, not only the first. Returns `None` if it
/// has any.
fn fence(feature: &Value, faults: &mut Vec<String>) -> Option<Fence> {
    let properties = &feature["properties"];
    let name = name(&properties["name"]).map_err(|fault| faults.push(fault));
    let mut moment = |key: &str, default| {
        moment(&properties[key], default).map_err(|fault| faults.push(format!("{key}: {fault}")))
    };
    let (valid_from, valid_until) =
        (moment("valid_from", VALID_FROM_DEFAULT), moment("valid_to", VALID_UNTIL_DEFAULT));
    if let (Ok(from), Ok(until)) = (valid_from, valid_until)
        && from >= until
    {
        faults.push("valid_to is not after valid_from".to_owned());
    }
    if !properties["valid_until"].is_null() {
        // `valid_until` is the name in the table and on the map. Ignoring it here would make the
        // fence valid for ever.
        faults.push("valid_until: use valid_to instead, with a date or a time".to_owned());
    }
    let polygons = polygons(&feature["geometry"], faults);
    let rules = FenceRules::read(properties, faults);
    let fence = Fence {
        name: name.ok()?,
        valid_from: valid_from.ok()?,
        valid_until: valid_until.ok()?,
        polygons,
        rules,
    };
    faults.is_empty().then_some(fence)
}

fn name(value: &Value) -> Result<String, String> {
    let name = value.as_str().ok_or("properties.name must be a string")?;
    check_name(name).map(|()| name.to_owned())
}

/// Checks the name of a fence.
///
/// # Errors
/// The name is invalid. The message states the rule for names.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        return Err(format!(
            "properties.name must have 1-{NAME_BYTES_MAX} bytes and no control characters"
        ));
    }
    Ok(())
}

/// Parses a date, which begins at 00:00 UTC, or a time. `null` gives the default.
fn moment(value: &Value, default: Timestamp) -> Result<Timestamp, String> {
    if value.is_null() {
        return Ok(default);
    }
    let text = value.as_str().unwrap_or_default();
    let with_time = if text.len() == "2026-11-21".len() {
        format!("{text}T00:00:00Z")
    } else {
        text.to_owned()
    };
    let moment = rfc3339(&with_time).filter(|moment| MOMENTS_MS.contains(&moment.unix_ms()));
    moment.ok_or_else(|| {
        format!(
            "{value} is not a date or time of the years 1900 to 2299, such as \"2026-11-21\" (UTC) \
             or \"2026-11-21T08:00:00+01:00\""
        )
    })
}

/// Reads the valid polygons of a geometry. Appends the errors of the others to `faults`.
fn polygons(geometry: &Value, faults: &mut Vec<String>) -> Vec<Polygon> {
    let coordinates = &geometry["coordinates"];
    let shapes = match geometry["type"].as_str() {
        Some("Polygon") => std::slice::from_ref(coordinates),
        Some("MultiPolygon") => coordinates.as_array().map_or(&[][..], Vec::as_slice),
        Some(kind) => {
            faults.push(format!("is a {kind}; expected a Polygon or a MultiPolygon"));
            return Vec::new();
        }
        None => {
            faults.push("has no geometry".to_owned());
            return Vec::new();
        }
    };
    if shapes.is_empty() {
        faults.push("has no polygons".to_owned());
    }
    let has_several = shapes.len() > 1;
    let mut polygons = Vec::new();
    for (index, coordinates) in shapes.iter().enumerate() {
        match polygon(coordinates).and_then(|polygon| geometry::check(&polygon).map(|()| polygon)) {
            Ok(polygon) => polygons.push(polygon),
            Err(fault) if has_several => faults.push(format!("polygon {index}: {fault}")),
            Err(fault) => faults.push(fault),
        }
    }
    polygons
}

/// Reads a polygon, and closes its rings.
fn polygon(coordinates: &Value) -> Result<Polygon, String> {
    let rings = coordinates.as_array().filter(|rings| !rings.is_empty()).ok_or("has no rings")?;
    let ring = |(index, ring): (usize, &Value)| {
        let points = ring.as_array().ok_or_else(|| format!("ring {index} is not an array"))?;
        points
            .iter()
            .map(point)
            .collect::<Result<Vec<_>, _>>()
            .map(closed)
            .map_err(|fault| format!("ring {index}: {fault}"))
    };
    rings.iter().enumerate().map(ring).collect()
}

/// Repeats the first point of an open ring at its end, as RFC 7946 requires. ClickHouse closes open
/// rings by itself, so a row that was inserted with SQL may hold an open ring.
#[must_use]
pub fn closed(mut ring: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    if ring.first() != ring.last() {
        ring.extend(ring.first().copied());
    }
    ring
}

/// Parses a position. A third number, the height, is ignored.
fn point(value: &Value) -> Result<Point, String> {
    let numbers =
        value.as_array().map(|numbers| numbers.iter().map_while(Value::as_f64).collect::<Vec<_>>());
    match numbers.as_deref() {
        Some([lng, lat] | [lng, lat, _]) => Ok([*lng, *lat]),
        Some(_) | None => Err(format!("{value} is not a point; expected [lng, lat]")),
    }
}

/// Returns the insert of these areas.
#[must_use]
pub(crate) fn insert(fences: &[Fence], database: &str) -> Insert {
    let mut body = Vec::new();
    for fence in fences {
        put_text(fence.name.as_bytes(), &mut body);
        body.extend_from_slice(&fence.valid_from.unix_ms().to_le_bytes());
        body.extend_from_slice(&fence.valid_until.unix_ms().to_le_bytes());
        put_count(fence.polygons.len(), &mut body);
        for polygon in &fence.polygons {
            put_count(polygon.len(), &mut body);
            for ring in polygon {
                put_count(ring.len(), &mut body);
                ring.iter()
                    .flatten()
                    .for_each(|degrees| body.extend_from_slice(&degrees.to_le_bytes()));
            }
        }
        fence.rules.encode(&mut body);
    }
    Insert { statement: FENCES.statement(database), body: body.into(), rows: fences.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(properties: &str, kind: &str, coordinates: &str) -> String {
        format!(
            r#"{{"type":"Feature","properties":{properties},"geometry":{{"type":"{kind}","coordinates":{coordinates}}}}}"#
        )
    }

    fn polygon(coordinates: &str) -> Read {
        read(&feature(r#"{"name":"depot"}"#, "Polygon", coordinates)).unwrap()
    }

    fn assert_refused(coordinates: &str, why: &str) {
        let read = polygon(coordinates);
        assert_eq!(
            (read.fences.len(), read.invalid.len(), read.invalid_features),
            (0, 1, 1),
            "{read:?}"
        );
        let line = read.invalid[0].strip_prefix("feature 0 \"depot\": ");
        assert!(
            line.is_some_and(|line| line.starts_with(why)),
            "{:?} does not begin with {why:?}",
            read.invalid
        );
    }

    #[test]
    fn areas_keep_their_shapes_names_and_times() {
        let square = "[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[1,1],[1,2,99],[2,2],[2,1],[1,1]]]";
        let shapes = format!("[{square},[[[9,9],[10,9],[9,10],[9,9]]]]");
        let whole = format!(
            r#"{{"type":"FeatureCollection","features":[{},{}]}}"#,
            feature(
                r#"{"name":"a","valid_from":"2026-01-01","valid_to":"2026-02-01T01:00:00+01:00"}"#,
                "MultiPolygon",
                &shapes
            ),
            feature(r#"{"name":"b"}"#, "Polygon", square),
        );
        let read = read(&whole).unwrap();
        assert_eq!(read.invalid, Vec::<String>::new());
        let [a, b] = &read.fences[..] else { panic!("{read:?}") };
        assert_eq!(
            (a.valid_from.unix_ms(), a.valid_until.unix_ms()),
            (1_767_225_600_000, 1_769_904_000_000)
        );
        assert_eq!((b.valid_from, b.valid_until), (VALID_FROM_DEFAULT, VALID_UNTIL_DEFAULT));
        assert_eq!(a.polygons[0], b.polygons[0]);
        assert_eq!(a.polygons[0][1][1], [1.0, 2.0], "the height is ignored");
        assert_eq!(a.polygons.len(), 2);
    }

    #[test]
    fn open_ring_is_closed() {
        let open = "[[[0,0],[4,0],[4,4],[0,4]],[[1,1],[1,2],[2,2]]]";
        let closed = "[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[1,1],[1,2],[2,2],[1,1]]]";
        assert_eq!(polygon(open).invalid, Vec::<String>::new());
        assert_eq!(polygon(open), polygon(closed));
    }

    #[test]
    fn each_fault_of_a_shape_is_reported() {
        for (coordinates, why) in [
            ("[]", "has no rings"),
            ("[7]", "ring 0 is not an array"),
            ("[[[0,0],[1,\"1\"],[0,1],[0,0]]]", "ring 0: [1,\"1\"] is not a point"),
            ("[[[0,0],[1,1],[0,0]]]", "ring 0: 3 points; a ring has at least 4"),
            ("[[[0,0],[1,1]]]", "ring 0: 3 points; a ring has at least 4"),
            ("[[[0,0],[1,0],[1,0],[0,0]]]", "ring 0: has no area"),
            ("[[[0,0],[2,0],[1,0],[0,0]]]", "ring 0: runs back along itself near 0, 0"),
            ("[[[0,0],[4,0],[2,0],[2,3],[0,0]]]", "ring 0: runs back along itself near 4, 0"),
            (
                "[[[52.5,113],[52.6,113],[52.6,114],[52.5,113]]]",
                "ring 0: 113 is not a latitude: are the two",
            ),
            ("[[[0,0],[1,0],[1,91],[0,0]]]", "ring 0: 91 is not a latitude"),
            (
                "[[[170,0],[190,0],[190,5],[170,5],[170,0]]]",
                "ring 0: 190 is not a longitude: cut an area that crosses the antimeridian",
            ),
            ("[[[170,0],[-170,0],[-170,5],[170,5],[170,0]]]", "ring 0: crosses the antimeridian"),
            // Rings along only one edge of the map, or along one edge and across to the other.
            ("[[[180,0],[-170,0],[-170,5],[180,5],[180,0]]]", "ring 0: crosses the antimeridian"),
            ("[[[-180,0],[180,0],[180,5],[-180,0]]]", "ring 0: crosses the antimeridian"),
            (
                "[[[-7.5,2.25],[-3,6],[-3,2],[-7,6],[-7.5,2.25]]]",
                "ring 0: crosses itself near -7.5, 2.25",
            ),
            ("[[[0,0],[4,0],[2,2],[4,4],[0,4],[2,2],[0,0]]]", "ring 0: touches itself"),
            (
                "[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[3,1],[5,1],[5,2],[3,2],[3,1]]]",
                "ring 1 crosses ring 0",
            ),
            (
                "[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[5,5],[6,5],[6,6],[5,5]]]",
                "ring 1 is a hole outside",
            ),
            (
                "[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[-3,1],[-2,1],[-2,2],[-3,1]]]",
                "ring 1 is a hole outside",
            ),
            // A hole beyond a slanted side, and a hole east of a staircase, at the height of its
            // steps.
            (
                "[[[0,0],[4,0],[0,4],[0,0]],[[3,3],[3.5,3],[3,3.5],[3,3]]]",
                "ring 1 is a hole outside",
            ),
            (
                "[[[0,0],[4,0],[4,1],[3,1],[3,2],[0,2],[0,0]],[[10,0],[12,0],[12,2],[10,0]]]",
                "ring 1 is a hole outside",
            ),
            (
                "[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[0,1],[0,2],[1,2],[1,1],[0,1]]]",
                "ring 1 runs along ring 0",
            ),
            (
                "[[[0,0],[9,0],[9,9],[0,9],[0,0]],[[1,1],[5,1],[5,5],[1,5],[1,1]],[[2,2],[3,2],[3,3],[2,2]]]",
                "ring 2 is a hole in the hole of ring 1",
            ),
        ] {
            assert_refused(coordinates, why);
        }
        // A hole may touch the outline in one point; both orientations are valid.
        for good in [
            "[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[0,1],[1,2],[1,1],[0,1]]]",
            "[[[0,0],[0,4],[4,4],[4,4],[4,0],[0,0]]]",
            "[[[-180,-90],[180,-90],[180,90],[0,90],[-180,90],[-180,-90]]]",
            "[[[-90,0],[90,0],[90,5],[-90,5],[-90,0]]]",
            "[[[170,0],[175,0],[175,5],[170,0]]]",
            "[[[0,-4],[4,0],[0,4],[-4,0],[0,-4]],[[-1,0],[1,-1],[1,1],[-1,0]]]",
        ] {
            assert_eq!(polygon(good).invalid, Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn each_fault_of_a_feature_is_reported_with_its_index() {
        let square = "[[[0,0],[4,0],[4,4],[0,4],[0,0]]]";
        let features = [
            feature("{}", "Polygon", square),
            feature(r#"{"name":"a","valid_from":"then"}"#, "Polygon", square),
            feature(
                r#"{"name":"b","valid_from":"2026-02-01","valid_to":"2026-02-01"}"#,
                "Polygon",
                square,
            ),
            feature(r#"{"name":"c"}"#, "Point", "[0,0]"),
            feature(r#"{"name":"d"}"#, "MultiPolygon", &format!("[{square},[[[0,0]]],[]]")),
            feature(r#"{"name":"e"}"#, "Polygon", square),
            feature(r#"{"name":"e"}"#, "Polygon", square),
            r#"{"type":"Feature","properties":{"name":"f"},"geometry":null}"#.to_owned(),
            feature(r#"{"name":"g","valid_until":"2026-02-01"}"#, "Polygon", square),
        ];
        let text = format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","));
        let read = read(&text).unwrap();
        assert_eq!(read.fences.iter().map(|fence| &*fence.name).collect::<Vec<_>>(), ["e"]);
        assert_eq!(read.invalid_features, 8);
        let expected = [
            "feature 0: properties.name must be a string",
            "feature 1 \"a\": valid_from: \"then\" is not a date",
            "feature 2 \"b\": valid_to is not after valid_from",
            "feature 3 \"c\": is a Point; expected a Polygon or a MultiPolygon",
            "feature 4 \"d\": polygon 1: ring 0: 1 points",
            "feature 4 \"d\": polygon 2: has no rings",
            "feature 6 \"e\": has the same name and valid_from as feature 5",
            "feature 7 \"f\": has no geometry",
            "feature 8 \"g\": valid_until: use valid_to instead",
        ];
        assert_eq!(read.invalid.len(), expected.len(), "{:#?}", read.invalid);
        for (line, expected) in read.invalid.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line:?} does not begin with {expected:?}");
        }
        for (name, fences) in
            [("", 0), ("a\\u0007", 0), (&*"x".repeat(256), 1), (&*"x".repeat(257), 0)]
        {
            let named = feature(&format!(r#"{{"name":"{name}"}}"#), "Polygon", square);
            assert_eq!(super::read(&named).unwrap().fences.len(), fences, "{name}");
        }
        let empty = r#"{"type":"FeatureCollection"}"#;
        for (text, why) in [
            ("{", "not JSON"),
            ("[]", "has no type"),
            (square, "has no type"),
            (empty, "no array \"features\""),
        ] {
            assert!(super::read(text).unwrap_err().contains(why), "{text}");
        }
    }
}
