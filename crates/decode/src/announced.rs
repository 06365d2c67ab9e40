//! Recognises names of members that announce how the values beside them are written: a scale
//! (`speed_scale`), a notation (`lat_format`), the north of a heading (`heading_reference`), the
//! level of an altitude (`altitude_ref`), a unit (`speed_type`).

use super::field_names::{is_name_of, normalised};

/// The kind of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announcement {
    /// The sent values are scaled: multiplied or divided by a number.
    Scale,
    /// The values are written in a notation such as `ddmm.mmmm`.
    Notation,
    /// A heading counts from true or magnetic north.
    North,
    /// Like [`North`](Self::North), but only words count: in `"heading_type":"M"`, the letter may
    /// mean something else.
    NorthInWords,
    /// A flag that a heading counts from magnetic north.
    IsMagnetic,
    /// A flag that a heading counts from true north.
    IsTrue,
    /// An altitude counts from the sea or from the ground.
    Level,
}

/// Endings of names that announce a scale.
const SCALES: [&str; 7] =
    ["scalefactor", "scalingfactor", "factor", "scale", "scaling", "multiplier", "divisor"];
/// Endings of names that announce a notation.
const NOTATIONS: [&str; 3] = ["format", "encoding", "notation"];
/// Names of a notation that do not contain the name of a coordinate.
const BARE_NOTATIONS: [&str; 2] = ["format", "notation"];
/// Endings of names that announce the north of a heading.
const REFERENCES: [&str; 2] = ["reference", "ref"];
/// Endings of names that announce the level of an altitude.
const LEVELS: [&str; 4] = ["reference", "ref", "type", "datum"];
/// Endings of names such as `speed_type`, which may state a unit.
const TYPES: [&str; 2] = ["type", "format"];
/// Names of flags about the north of a heading.
const FLAGS_OF_NORTH: [(&str, Announcement); 4] = [
    ("truenorth", Announcement::IsTrue),
    ("istruenorth", Announcement::IsTrue),
    ("magneticnorth", Announcement::IsMagnetic),
    ("ismagneticnorth", Announcement::IsMagnetic),
];
const FIELDS: [&str; 6] = ["lat", "lng", "speed", "heading", "alt", "acc"];
/// Names of a pair of coordinates.
const PLACES: [&str; 9] = [
    "coord",
    "coords",
    "coordinate",
    "coordinates",
    "position",
    "pos",
    "location",
    "latlng",
    "latlon",
];
/// Names of members that state a time scale, such as UTC or GPS time.
const TIME_SCALES: [&str; 5] =
    ["timescale", "timesystem", "tsscale", "timestampscale", "timestandard"];

/// Returns the kind of announcement that a name makes, and the normalised name of the field or
/// fields that the announcement is about; this name may be empty. The caller runs [`may_announce`]
/// first, so that function must accept every name for which this function returns `Some`.
pub(super) fn announcement(name: &str) -> Option<(Announcement, String)> {
    let name = normalised(name);
    let stem = |ends: &[&str], is_stem: &dyn Fn(&str) -> bool| {
        let mut stems = ends.iter().filter_map(|end| name.strip_suffix(end));
        stems.find(|stem| is_stem(stem)).map(str::to_owned)
    };
    let is_field = |stem: &str| FIELDS.iter().any(|field| is_name_of(field, stem));
    let is_place =
        |stem: &str| PLACES.contains(&stem) || is_name_of("lat", stem) || is_name_of("lng", stem);
    let is_heading = |stem: &str| is_name_of("heading", stem);
    let scale = stem(&SCALES, &|stem| is_field(stem) || is_place(stem));
    let notation = || stem(&NOTATIONS, &is_place);
    let north = || stem(&REFERENCES, &|stem| is_heading(stem) || stem == "north");
    let magnetic = || stem(&["ismagnetic", "magnetic"], &is_heading);
    let level = || stem(&LEVELS, &|stem| is_name_of("alt", stem));
    let north_in_words =
        || stem(&["type"], &is_heading).or_else(|| (name == "compass").then(|| name.clone()));
    let flag = || FLAGS_OF_NORTH.into_iter().find(|(flag, _)| *flag == name);
    let found = scale.map(|stem| (Announcement::Scale, stem));
    let found = found.or_else(|| Some((Announcement::Notation, notation()?)));
    let found = found.or_else(|| {
        let is_bare = BARE_NOTATIONS.contains(&&*name);
        is_bare.then(|| (Announcement::Notation, String::new()))
    });
    let found = found.or_else(|| Some((Announcement::North, north()?)));
    let found = found.or_else(|| Some((Announcement::NorthInWords, north_in_words()?)));
    let found = found.or_else(|| Some((Announcement::Level, level()?)));
    let found = found.or_else(|| flag().map(|(_, kind)| (kind, "north".to_owned())));
    found.or_else(|| Some((Announcement::IsMagnetic, magnetic()?)))
}

/// Returns the name of a speed in a normalised name such as `speedtype`. The value of such a member
/// may be a unit.
pub(super) fn speed_of_type(name: &str) -> Option<&str> {
    let mut stems = TYPES.iter().filter_map(|end| name.strip_suffix(end));
    stems.find(|stem| is_name_of("speed", stem))
}

/// Returns whether a name announces a notation of coordinates. Its value may also be a reference
/// system: `"coordinate_format":"GCJ02"`.
pub(super) fn names_notation(name: &str) -> bool {
    let last = name.as_bytes().last_chunk().map(|last: &[u8; 5]| last.map(|byte| byte | 0x20));
    last.is_some_and(|last| matches!(&last, b"ormat" | b"oding" | b"ation"))
        && matches!(announcement(name), Some((Announcement::Notation, _)))
}

/// Returns whether a normalised name announces a time scale.
pub(super) fn is_time_scale(name: &str) -> bool {
    TIME_SCALES.contains(&name)
}

/// Returns whether an announcement is about `field`. `stem`: the name in the announcement; `own`:
/// the normalised name of the member that the field is read from.
pub(super) fn is_about(stem: &str, field: &str, own: &str) -> bool {
    let is_place = ["lat", "lng"].contains(&field);
    // `x_scale` and `y_scale` may be scales of an accelerometer, and not of coordinates.
    let is_alias = is_name_of(field, stem) && !["x", "y", "long"].contains(&stem);
    stem == own
        || is_alias
        || is_place && (PLACES.contains(&stem) || stem.is_empty())
        || field == "heading" && ["north", "compass"].contains(&stem)
}

/// Returns whether a key announces something, or names a time scale.
#[cold]
pub(super) fn announces(key: &[u8]) -> bool {
    let name = String::from_utf8_lossy(key);
    let normal = normalised(&name);
    announcement(&name).is_some() || is_time_scale(&normal) || speed_of_type(&normal).is_some()
}

/// Returns whether a key may announce something. Reads only the first and the last bytes. `key`:
/// the key without an `s` at its end; `last`: the last bytes of `key` in lower case.
#[inline]
pub(super) fn may_announce(key: &[u8], last: &[u8; 5]) -> bool {
    may_be_scale(last)
        || match last {
            // `format`, `encoding`, `reference`, `magnetic`, `time_standard`, `heading_ref`,
            // `true_north`, `compass`.
            b"ormat"
            | b"oding"
            | b"rence"
            | b"netic"
            | b"ndard"
            | [_, _, b'r', b'e', b'f']
            | b"north"
            | b"ompas" => true,
            // `notation`, but not `location` or `duration`.
            b"ation" => key.last_chunk().is_some_and(|last: &[u8; 8]| {
                last.first_chunk().is_some_and(|first| is_lower(first, b"not"))
            }),
            // `speed_type`, but not `event_type`.
            [_, b't', b'y', b'p', b'e'] | b"datum" => key.first_chunk().is_some_and(|first| {
                BEGINNINGS_OF_TYPES.iter().any(|begin| is_lower(first, begin))
            }),
            _ => false,
        }
}

/// Beginnings of the names of a speed, a heading and an altitude.
const BEGINNINGS_OF_TYPES: [&[u8; 3]; 15] = [
    b"spe", b"vel", b"spd", b"sog", b"gro", b"hea", b"cou", b"bea", b"cog", b"hdg", b"dir", b"tra",
    b"alt", b"ele", b"hei",
];

fn is_lower(bytes: &[u8; 3], lower: &[u8; 3]) -> bool {
    bytes.map(|byte| byte | 0x20) == *lower
}

/// Returns whether a key with these last bytes, in lower case, may name a scale.
#[inline]
fn may_be_scale(last: &[u8; 5]) -> bool {
    matches!(last, b"scale" | b"aling" | b"actor" | b"plier" | b"visor")
}

/// Returns whether a key may name the scale of a number.
#[inline]
pub(super) fn may_name_scale(key: &[u8]) -> bool {
    let last = key.last_chunk().map(|last: &[u8; 5]| last.map(|byte| byte | 0x20));
    last.is_some_and(|last| may_be_scale(&last))
}

#[cfg(test)]
mod tests {
    use super::super::field_names::all_names;
    use super::*;

    #[test]
    fn each_combination_that_announces_passes_the_first_check() {
        let aliases = all_names(&FIELDS).chain(PLACES).chain(["north"]);
        let stems: Vec<&str> = aliases.collect();
        let ends: Vec<&str> = SCALES
            .into_iter()
            .chain(NOTATIONS)
            .chain(LEVELS)
            .chain(TYPES)
            .chain(["magnetic", "is_magnetic"])
            .collect();
        let bare = BARE_NOTATIONS.into_iter().chain(["compass", "true_north", "isMagneticNorth"]);
        let bare = TIME_SCALES.into_iter().chain(bare);
        let mut names: Vec<String> = bare.map(str::to_owned).collect();
        for stem in &stems {
            for end in &ends {
                names.extend(["", "_", "-", "."].map(|between| format!("{stem}{between}{end}")));
            }
        }
        names.retain(|name| announces(name.as_bytes()));
        assert!(names.len() > 1_000, "{}", names.len());
        for name in names {
            for key in [&name, &name.to_uppercase()] {
                assert!(crate::unit_words::names_unit(key), "{key}");
            }
        }
        for name in ["time_standard", "direction_ref", "trackRef", "cogRef", "speedScalingFactor"] {
            assert!(announces(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn each_usual_name_that_announces_passes_the_first_check() {
        for name in [
            "speed_scale",
            "latScaleFactor",
            "alt_multiplier",
            "heading_divisor",
            "lat_format",
            "coordinateFormat",
            "coords_encoding",
            "heading_reference",
            "course_ref",
            "headingRef",
            "north_reference",
            "bearingRef",
            "heading_magnetic",
            "course_is_magnetic",
            "time_scale",
            "timeSystem",
            "speed_scaling",
            "altitude_ref",
            "altDatum",
            "elevation_reference",
            "speed_type",
            "groundSpeedType",
            "velocity_format",
            "courseType",
            "lat_notation",
            "coordinateNotation",
            "true_north",
            "isTrueNorth",
            "magnetic_north",
            "compass",
            "format",
        ] {
            assert!(announces(name.as_bytes()), "{name}");
            assert!(crate::unit_words::names_unit(name), "{name}");
        }
        for name in
            ["scale", "encoding", "map_scale", "gps_format", "order_ref", "lat_ref", "factor"]
        {
            assert!(announcement(name).is_none(), "{name}");
        }
        for name in ["event_type", "vehicleType", "type", "location", "station", "datum", "north"] {
            assert!(!crate::unit_words::names_unit(name), "{name}");
        }
    }
}
