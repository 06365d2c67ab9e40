//! Recognises the names and values of hemispheres next to coordinates, such as `lat_dir` and `S`.

/// Normalises a name: lower case, without spaces, `_`, `-` and `.`.
pub(super) fn normalised(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ' | '.')).collect::<String>().to_lowercase()
}

/// Returns whether the key may name a hemisphere; reads only its first bytes.
#[inline]
pub(super) fn may_be_hemisphere(key: &[u8]) -> bool {
    match key {
        [b'n' | b'N' | b'e' | b'E', _] | [b'n' | b'N' | b'e' | b'E', _, _] => true,
        // `ns_indicator`, `n/s`, `northSouth`; `ew…`, `eastWest`; `dirLat`; `hemisphereLat`.
        [b'n' | b'N', b's' | b'S' | b'/' | b'_' | b'-', ..]
        | [b'e' | b'E', b'w' | b'W' | b'/' | b'_' | b'-', ..]
        | [b'n' | b'N', b'o' | b'O', b'r' | b'R', ..]
        | [b'e' | b'E', b'a' | b'A', b's' | b'S', ..]
        | [b'd' | b'D', b'i' | b'I', b'r' | b'R', b'l' | b'L' | b'_' | b'-', ..]
        | [b'h' | b'H', b'e' | b'E', b'm' | b'M', ..] => true,
        [b'l' | b'L', b'a' | b'A' | b'o' | b'O' | b'n' | b'N', _, _, ..] => true,
        [b'g' | b'G', b'p' | b'P', b's' | b'S', _, _, ..] => true,
        _ => false,
    }
}

/// Suffixes that turn the name of a coordinate into that of its hemisphere, such as `lat_dir`.
const HEMISPHERE_ENDINGS: [&str; 12] = [
    "ns",
    "ew",
    "h",
    "dir",
    "direction",
    "ref",
    "hem",
    "hemi",
    "hemisphere",
    "indicator",
    "cardinal",
    "pole",
];
/// Prefixes that turn the name of a coordinate into that of its hemisphere, such as `dir_lat`.
const HEMISPHERE_BEGINNINGS: [&str; 4] = ["dir", "hem", "hemi", "hemisphere"];
/// Names that state both sides of a coordinate.
const BOTH: [[&str; 2]; 2] = [["ns", "northsouth"], ["ew", "eastwest"]];
/// Names of latitude and longitude in the name of a hemisphere.
const COORDINATES: [&[&str]; 2] = [&["lat", "latitude"], &["lng", "lon", "long", "longitude"]];

/// Returns the coordinate with this name: 0 for lat, 1 for lng.
pub(super) fn coordinate(name: &str) -> Option<usize> {
    let name = normalised(name);
    COORDINATES.iter().position(|names| names.contains(&&*name))
}

/// Returns whether a name is that of a coordinate and one of `ends`, such as `lat_min`.
pub(super) fn is_coordinate_with(name: &str, ends: &[&str]) -> bool {
    let name = normalised(name);
    let name = name.strip_prefix("gps").unwrap_or(&name);
    let end = |field: &&str| name.strip_prefix(field).is_some_and(|end| ends.contains(&end));
    COORDINATES.iter().any(|names| names.iter().any(end))
}

/// Returns whether a member in the object of a coordinate has the name of a hemisphere, such as
/// `dir` in `"lat":{"deg":33.5,"dir":"S"}`.
pub(super) fn is_hemisphere_of_parent(name: &str) -> bool {
    HEMISPHERE_ENDINGS.contains(&&*normalised(name))
}

/// Returns whether a value says south, for coordinate 0, or west, for coordinate 1.
pub(super) fn says_negative(value: &str, coordinate: usize) -> bool {
    const WORDS: [&[&str]; 2] = [
        &["s", "south", "southern", "sur", "sud", "sul", "süd", "süden"],
        &["w", "west", "western", "westen", "oeste", "ouest", "ovest"],
    ];
    // The first word decides, as in `S.`, `South latitude` and `W (west)`.
    let lower = value.to_lowercase();
    let first = lower.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty());
    first.is_some_and(|word| WORDS[coordinate].contains(&word))
}

/// Returns the coordinate whose hemisphere has this name: 0 for lat, 1 for lng.
pub fn hemisphere(name: &str) -> Option<usize> {
    let name = normalised(name).replace('/', "");
    let name = name.strip_prefix("gps").unwrap_or(&name);
    let is_of = |field: &str| {
        let ends = name.strip_prefix(field).is_some_and(|end| HEMISPHERE_ENDINGS.contains(&end));
        let begin = || name.strip_suffix(field);
        ends || begin().is_some_and(|begin| HEMISPHERE_BEGINNINGS.contains(&begin))
    };
    let is_both = |both: &str| {
        name.strip_prefix(both)
            .is_some_and(|end| end.is_empty() || HEMISPHERE_ENDINGS.contains(&end))
    };
    [0, 1].into_iter().find(|n| {
        BOTH[*n].iter().any(|both| is_both(both))
            || COORDINATES[*n].iter().any(|field| is_of(field))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn south_and_west_are_read_in_the_forms_people_write() {
        for south in ["S", " s ", "S.", "South", "Southern", "south latitude", "(S)", "Süd"] {
            assert!(says_negative(south, 0) && !says_negative(south, 1), "{south}");
        }
        for west in ["W", "w.", "West", "Western hemisphere", "W (west)", "Ouest"] {
            assert!(says_negative(west, 1) && !says_negative(west, 0), "{west}");
        }
        for other in ["", "N", "E", "sensors", "status", "wifi", "1", "-"] {
            assert!(!says_negative(other, 0) && !says_negative(other, 1), "{other}");
        }
    }
}
