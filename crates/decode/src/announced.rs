//! Recognises names of members that announce how the values beside them are written: a scale
//! (`speed_scale`), a notation (`lat_format`), the north of a heading (`heading_reference`).

use super::field_names::{is_name_of, normalised};

/// The kind of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announcement {
    /// The values are multiplied or divided by a number.
    Scale,
    /// The values are written in a notation such as `ddmm.mmmm`.
    Notation,
    /// A heading counts from true or magnetic north.
    North,
    /// A flag that a heading counts from magnetic north.
    IsMagnetic,
}

const SCALES: [&str; 5] = ["scalefactor", "scale", "scaling", "multiplier", "divisor"];
const NOTATIONS: [&str; 2] = ["format", "encoding"];
const REFERENCES: [&str; 2] = ["reference", "ref"];
const FIELDS: [&str; 6] = ["lat", "lng", "speed", "heading", "alt", "acc"];
/// Names of the coordinates together.
const PLACES: [&str; 10] = [
    "coord",
    "coords",
    "coordinate",
    "coordinates",
    "position",
    "pos",
    "location",
    "latlng",
    "latlon",
    "gps",
];
/// Names of the scale of times, such as UTC or the time of GPS.
const SCALES_OF_TIME: [&str; 5] =
    ["timescale", "timesystem", "tsscale", "timestampscale", "timestandard"];

/// Returns the announcement that a name makes, and the normalised name of the field or fields that
/// it is about.
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
    let of_heading = |stem: &str| is_heading(stem.strip_suffix("is").unwrap_or(stem));
    let scale = stem(&SCALES, &|stem| is_field(stem) || is_place(stem));
    let notation = || stem(&NOTATIONS, &is_place);
    let north = || stem(&REFERENCES, &|stem| is_heading(stem) || stem == "north");
    let magnetic = || stem(&["magnetic"], &of_heading);
    let found = scale.map(|stem| (Announcement::Scale, stem));
    let found = found.or_else(|| Some((Announcement::Notation, notation()?)));
    let found = found.or_else(|| Some((Announcement::North, north()?)));
    found.or_else(|| Some((Announcement::IsMagnetic, magnetic()?)))
}

/// Returns whether a normalised name is that of a scale of times.
pub(super) fn is_scale_of_time(name: &str) -> bool {
    SCALES_OF_TIME.contains(&name)
}

/// Returns whether the stem of an announcement is the name of this field.
pub(super) fn is_about(stem: &str, field: &str, is_place: bool) -> bool {
    is_name_of(field, stem)
        || is_place && PLACES.contains(&stem)
        || field == "heading" && stem == "north"
        || stem.strip_suffix("is").is_some_and(|stem| is_name_of(field, stem))
}

/// Returns whether a key announces something, or names a scale of times.
#[cold]
pub(super) fn announces(key: &[u8]) -> bool {
    let name = String::from_utf8_lossy(key);
    announcement(&name).is_some() || is_scale_of_time(&normalised(&name))
}

/// Returns whether a key without an `s` at its end may announce something; reads only its last
/// bytes. `last`: these bytes in lower case.
#[inline]
pub(super) fn may_announce(last: &[u8; 5]) -> bool {
    may_be_scale(last)
        || matches!(
            last,
            // `format`, `encoding`, `reference`, `magnetic`; `_` in lower case is 0x7f.
            b"ormat" | b"oding" | b"rence" | b"netic"
                // `heading_ref`, `course_ref`, `northRef`
                | b"g\x7fref" | b"e\x7fref" | b"h\x7fref" | b"ngref" | b"seref" | b"thref"
        )
}

/// Returns whether a key may name a scale.
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
    use super::*;

    #[test]
    fn each_announcement_passes_the_first_check() {
        for name in [
            "speed_scale",
            "latScaleFactor",
            "alt_multiplier",
            "heading_divisor",
            "lat_format",
            "coordinateFormat",
            "gps_encoding",
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
        ] {
            assert!(announces(name.as_bytes()), "{name}");
            assert!(crate::unit_words::names_unit(name), "{name}");
        }
        for name in
            ["scale", "format", "map_scale", "payload_format", "order_ref", "lat_ref", "factor"]
        {
            assert!(announcement(name).is_none(), "{name}");
        }
    }
}
