//! Recognises the names and values of hemispheres next to coordinates, such as `lat_dir` and `S`.

use super::field_names::normalised;
use super::json::Scalar;
use super::reader::{Reader, elements, members};
use super::sides::SIDE_WORDS;
use super::unit_words::is_unit;

/// Returns whether the key may name a hemisphere or a unit; reads only its first or last bytes.
#[inline]
pub(super) fn may_be_hemisphere_or_unit(key: &[u8]) -> bool {
    match key {
        // The name may be in Chinese, or in Cyrillic letters.
        _ if is_unit(key) || key.first().is_some_and(|first| *first >= 0x80) => true,
        // `ns`, `nsi`, `ew`, `e/o`.
        [b'n' | b'N' | b'e' | b'E', _] | [b'n' | b'N' | b'e' | b'E', _, _] => true,
        // `ns_indicator`, `n/s`, `northSouth`; `ew…`, `eastWest`; `dirLat`; `hemisphereLat`.
        [b'n' | b'N', b's' | b'S' | b'/' | b'_' | b'-', ..]
        | [b'e' | b'E', b'w' | b'W' | b'/' | b'_' | b'-', ..]
        | [b'n' | b'N', b'o' | b'O', b'r' | b'R', ..]
        | [b's' | b'S', b'o' | b'O', b'u' | b'U', b't' | b'T', ..]
        | [b'w' | b'W', b'e' | b'E', b's' | b'S', b't' | b'T', ..]
        | [b'o' | b'O', b'/', _]
        | [b'e' | b'E', b'a' | b'A', b's' | b'S', ..]
        | [b'd' | b'D', b'i' | b'I', b'r' | b'R', b'l' | b'L' | b'_' | b'-', ..]
        | [b'h' | b'H', b'e' | b'E', b'm' | b'M', ..]
        | [b'h' | b'H', 0xc3, ..]
        | [b'e' | b'E', b'm' | b'M', b'i' | b'I', ..] => true,
        // `lat_ref`, `lonDir`, `länge…`, `breite…`, `gps_lat_ref`.
        [b'l' | b'L', b'a' | b'A' | b'o' | b'O' | b'n' | b'N' | 0xc3, _, _, ..] => true,
        [b'b' | b'B', b'r' | b'R', b'e' | b'E', ..] => true,
        [b'g' | b'G', b'p' | b'P', b's' | b'S', _, _, ..] => true,
        // `sign`, `signs`, `sign_lat`, `signLon`; not `signal`.
        [b's' | b'S', b'i' | b'I', b'g' | b'G', b'n' | b'N', rest @ ..] => {
            matches!(rest, [] | [b's' | b'S' | b'_' | b'-' | b'l' | b'L', ..])
        }
        // `isSouth`, `is_west`.
        [b'i' | b'I', b's' | b'S', rest @ ..] => {
            let word = rest.strip_prefix(b"_").unwrap_or(rest);
            matches!(word, [b's' | b'S' | b'w' | b'W', b'o' | b'O' | b'e' | b'E', _, _, ..])
        }
        _ => false,
    }
}

/// Returns whether the key may name a flag that says whether times are in UTC, such as `is_utc`.
#[inline]
pub(super) fn is_utc_flag(key: &[u8]) -> bool {
    matches!(key, [rest @ .., b'u' | b'U', b't' | b'T', b'c' | b'C'] if rest.len() <= 8)
}

/// Maximum length of the name of a hemisphere in bytes.
const NAME_BYTES_MAX: usize = 40;
/// Words that turn the name of a coordinate into the name of its hemisphere, such as `lat_dir`. A
/// name may have several such words: `latitude_cardinal_direction`.
const HEMISPHERE_ENDINGS: [&str; 28] = [
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
    "sign",
    "negative",
    "suffix",
    "side",
    "ind",
    "card",
    "sgn",
    "letter",
    "orientation",
    "hemisferio",
    "hemisfério",
    "hemisphäre",
    "hémisphère",
    "emisfero",
    "полушарие",
    "半球",
];
/// Prefixes that turn the name of a coordinate into the name of its hemisphere, such as `dir_lat`.
const HEMISPHERE_BEGINNINGS: [&str; 6] = ["dir", "hem", "hemi", "hemisphere", "sign", "signs"];
/// Names of hemispheres that consist of the two sides of a coordinate, such as `ns` for north or
/// south.
const SIDE_PAIRS: [&[&str]; 2] = [
    &["ns", "nsi", "nors", "northsouth", "南北"],
    &["ew", "ewi", "eorw", "eastwest", "东西", "東西"],
];
/// Names that consist of the two sides of the longitude, such as `e/o`. Each has the side that `O`
/// stands for: west in French, Italian, Portuguese and Spanish, east in German. A name without the
/// `/`, such as `eo`, does not count.
const NAMES_WITH_O: [(&str, Side); 3] =
    [("e/o", Side::Negative), ("o/e", Side::Negative), ("o/w", Side::Positive)];
/// Names of flags, each with its coordinate and the side that `true` stands for.
const FLAGS: [(&str, usize, Side); 4] = [
    ("north", 0, Side::Positive),
    ("south", 0, Side::Negative),
    ("east", 1, Side::Positive),
    ("west", 1, Side::Negative),
];
/// Names of objects that hold the point's own position. Other objects, such as `home`, hold other
/// places.
const PARENTS: [&str; 14] = [
    "values",
    "state",
    "reported",
    "properties",
    "data",
    "gps",
    "gnss",
    "fix",
    "geo",
    "position",
    "pos",
    "location",
    "loc",
    "coords",
];
/// Names of latitude and longitude in the name of a hemisphere.
const COORDINATES: [&[&str]; 2] = [
    &["lat", "latitude", "latitud", "latitudine", "breite", "широта", "纬度", "緯度"],
    &[
        "lng",
        "lon",
        "long",
        "longitude",
        "longitud",
        "longitudine",
        "länge",
        "laenge",
        "долгота",
        "经度",
        "經度",
        "経度",
    ],
];

/// Returns the coordinate with this name: 0 for lat, 1 for lng.
pub(super) fn coordinate(name: &str) -> Option<usize> {
    let name = normalised(name);
    COORDINATES.iter().position(|names| names.contains(&&*name))
}

/// Returns whether a name consists of a coordinate's name and one of `ends`, such as `lat_min`.
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

/// The sign that a hemisphere gives to its coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// North or east.
    Positive,
    /// South or west.
    Negative,
    /// `O`, which is east in German and west in French, Italian, Portuguese and Spanish.
    Unclear,
}

impl Side {
    const fn opposite(self) -> Self {
        match self {
            Self::Positive => Self::Negative,
            Self::Negative => Self::Positive,
            Self::Unclear => Self::Unclear,
        }
    }
}

/// Returns the side that the value of a hemisphere states: a letter or a word, a sign, a flag such
/// as `lat_negative`, or the ASCII code of a letter. `name`: the hemisphere's name.
pub(super) fn side(name: &str, value: &str, coordinate: usize) -> Option<Side> {
    let is_flag = normalised(name).ends_with("negative");
    match (value.trim(), coordinate) {
        ("true" | "1", _) if is_flag => return Some(Side::Negative),
        ("false" | "0", _) if is_flag => return Some(Side::Positive),
        ("-" | "-1", _) | ("83", 0) | ("87", 1) => return Some(Side::Negative),
        ("+" | "1" | "+1", _) | ("78", 0) | ("69", 1) => return Some(Side::Positive),
        _ => {}
    }
    // The first word decides, as in `S.`, `South latitude` and `W (west)`.
    let lower = value.to_lowercase();
    let word = lower.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty())?;
    let word = word.strip_suffix("半球").unwrap_or(word);
    if word == "o" && coordinate == 1 {
        let name = name.to_lowercase();
        let known = NAMES_WITH_O.iter().find(|(known, _)| *known == name);
        return Some(known.map_or(Side::Unclear, |(_, side)| *side));
    }
    [Side::Positive, Side::Negative]
        .into_iter()
        .zip(SIDE_WORDS[coordinate])
        .find_map(|(side, words)| words.contains(&word).then_some(side))
}

/// Possible lengths in bytes of the first side in a word for two sides: `s` in `sw`, one Cyrillic
/// letter, one Chinese character, and `south`.
const FIRST_WORD_BYTES: [usize; 4] = [1, 2, 3, 5];

/// Names of members that state the sides of both coordinates, as `SW` or `--`.
const NAMES_OF_BOTH: [&str; 14] = [
    "hemisphere",
    "hemispheres",
    "hemisferio",
    "hemisfério",
    "hemisphäre",
    "hémisphère",
    "emisfero",
    "полушарие",
    "半球",
    "hemi",
    "hem",
    "nsew",
    "sign",
    "signs",
];

/// Returns the sides in a value such as `SW`, `S W` or `south-west`.
fn sides_of_both(name: &str, value: &str) -> [Option<Side>; 2] {
    if !value.contains(char::is_alphabetic) {
        let signs: Vec<char> = value.chars().filter(|c| matches!(c, '+' | '-')).collect();
        if let [lat, lng] = &signs[..] {
            let side = |sign: &char| if *sign == '-' { Side::Negative } else { Side::Positive };
            return [Some(side(lat)), Some(side(lng))];
        }
        if name.contains("sign") && value.contains(|c: char| c.is_ascii_digit()) {
            return [None; 2];
        }
        // A single sign belongs to the latitude. 87 is the ASCII code of `W`, a side of the
        // longitude.
        return [side(name, value, 0), side(name, value, 1).filter(|_| value == "87")];
    }
    let lower = value.to_lowercase();
    let mut sides = [None; 2];
    for word in lower.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()) {
        let is_side = |word: &str| {
            [0, 1].map(|coordinate| side(name, word, coordinate)).iter().any(Option::is_some)
        };
        // `sw`, `southwest` and `西南` are two words without a space.
        let middle = FIRST_WORD_BYTES.into_iter().find(|at| {
            let parts = word.split_at_checked(*at);
            parts.is_some_and(|(first, second)| is_side(first) && is_side(second))
        });
        let (first, second) =
            word.split_at(middle.filter(|_| !is_side(word)).unwrap_or(word.len()));
        for part in [first, second] {
            for (coordinate, found) in sides.iter_mut().enumerate() {
                *found = found.or_else(|| side(name, part, coordinate));
            }
        }
    }
    sides
}

/// Returns whether an array or an object with this name may state sides, such as
/// `"dir":["S","W"]`. Directions of the wind and of travel do not count.
pub(super) fn may_list_sides(key: &[u8]) -> bool {
    const BEGINNINGS: [&str; 3] = ["hem", "nsew", "cardinal"];
    // Check the first letter: most names below begin with one of these letters, or are in Chinese
    // or Cyrillic. Names with another first letter do not count here: `breite…`, `o/e`, `o/w`,
    // `pos…`, `fix…`, `values…`.
    let is_first =
        |first: &u8| b"cdeghlnrs".contains(&first.to_ascii_lowercase()) || !first.is_ascii();
    // Most payloads have an object such as `device`, so check a few bytes of the name first.
    let ([rest @ .., b's' | b'S'] | rest) = key;
    let ends_with =
        |end: &[u8; 3]| rest.last_chunk::<3>().is_some_and(|last| last.eq_ignore_ascii_case(end));
    let begins = key.first_chunk::<4>().is_some_and(|first| first.eq_ignore_ascii_case(b"card"));
    let may_be = may_be_hemisphere_or_unit(key)
        || begins
        || [b"dir", b"ref", b"ere", b"ign"].iter().any(|end| ends_with(end));
    if !may_be || key.len() > NAME_BYTES_MAX || !key.first().is_some_and(is_first) {
        return false;
    }
    let name = normalised(&String::from_utf8_lossy(key));
    let is_of_position =
        |end: &&str| name.strip_suffix(*end).is_some_and(is_made_of_position_names);
    BEGINNINGS.iter().any(|begin| name.starts_with(begin))
        || ["hemisphere", "hemispheres"].iter().any(|end| name.ends_with(end))
        || ["dir", "dirs", "ref", "refs", "sign", "signs"].iter().any(is_of_position)
        || NAMES_OF_BOTH.contains(&&*name)
        || hemisphere(&name).is_some()
}

/// Returns whether an object of this name may hold the point's own position.
pub(super) fn is_parent(name: &str) -> bool {
    PARENTS.contains(&&*normalised(name))
}

/// Returns whether a normalised name is made only of names of positions and coordinates, such as
/// `gps` and `latlng`. Returns `true` for an empty name.
fn is_made_of_position_names(name: &str) -> bool {
    let mut words = PARENTS.iter().chain(COORDINATES.iter().copied().flatten());
    name.is_empty()
        || words.any(|word| name.strip_prefix(word).is_some_and(is_made_of_position_names))
}

/// Returns the sides that an array or an object states. `name`: its name or its path; `json`: its
/// JSON.
#[cold]
pub(super) fn sides_in_list(name: &str, json: &str) -> [Option<Side>; 2] {
    // A list of two words is never longer than this.
    const BYTES_MAX: usize = 200;
    let mut names = name.rsplit('/');
    let may_list = names.next().is_some_and(|name| may_list_sides(name.as_bytes()));
    if json.len() > BYTES_MAX || !may_list || !names.all(is_parent) {
        return [None; 2];
    }
    let mut found = [None; 2];
    let mut add = |sides: [Option<Side>; 2]| {
        found.iter_mut().zip(sides).for_each(|(found, side)| *found = found.or(side));
    };
    if json.starts_with('{') {
        for (member, value) in members(json.as_bytes()) {
            add(sides(&format!("{name}/{member}"), &value.to_word()));
        }
    } else if let Some((words, ..=2)) = elements(json.as_bytes(), 2) {
        let values = words.into_iter().map(|json| Reader::new(json).value());
        // Two numbers are a direction, unless the name contains `sign`.
        let are_signs = name.to_ascii_lowercase().contains("sign");
        let word = |value: Scalar<'_>| {
            let is_word = are_signs || value.as_text().is_some();
            is_word.then(|| value.to_word().into_owned())
        };
        let words: Option<Vec<String>> = values.map(|value| value.and_then(word)).collect();
        let words = words.unwrap_or_default();
        match &words[..] {
            [word] => add(sides(name, word)),
            [first, second] => {
                for [lat, lng] in [[first, second], [second, first]] {
                    if let (Some(ns), Some(ew)) = (side(name, lat, 0), side(name, lng, 1)) {
                        add([Some(ns), Some(ew)]);
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the sides that a member states, by coordinate. Recognises the names of [`hemisphere`],
/// flags such as `south`, and names such as `hemispheres`, whose value may state the sides of both
/// coordinates, as `SW` does.
pub(super) fn sides(name: &str, value: &str) -> [Option<Side>; 2] {
    // Most values are numbers. Only the numbers below may state a side.
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if is_number && !["-", "-1", "0", "1", "69", "78", "83", "87"].contains(&value) {
        return [None; 2];
    }
    let plain = normalised(name);
    if NAMES_OF_BOTH.contains(&&*plain) {
        // A `sign` may also be a signature, such as `q3+w8/S2aW1=`.
        let may_be = !plain.starts_with("sign") || value.chars().all(|c| "+-1,;:/| ".contains(c));
        return if may_be { sides_of_both(&plain, value) } else { [None; 2] };
    }
    let flag = plain.strip_prefix("is").unwrap_or(&plain);
    let mut sides = [None; 2];
    if let Some((_, coordinate, side)) = FLAGS.iter().find(|(known, ..)| *known == flag) {
        // A number may be a component of a velocity or a side of a box, unless the name begins
        // with `is`.
        let begins_with_is = flag.len() < plain.len();
        sides[*coordinate] = match value.trim() {
            "true" => Some(*side),
            "false" => Some(side.opposite()),
            "1" if begins_with_is => Some(*side),
            "0" if begins_with_is => Some(side.opposite()),
            _ => None,
        };
    } else if let Some(coordinate) = hemisphere(name) {
        sides[coordinate] = side(name, value, coordinate);
    }
    sides
}

/// Returns the coordinate whose hemisphere has this name: 0 for lat, 1 for lng.
pub fn hemisphere(name: &str) -> Option<usize> {
    let lower = name.to_lowercase();
    if NAMES_WITH_O.iter().any(|(known, _)| *known == lower) {
        return Some(1);
    }
    let name = normalised(name).replace('/', "");
    let name = name.strip_prefix("gps").unwrap_or(&name);
    let is_of = |field: &str| {
        let ends = name.strip_prefix(field).is_some_and(is_made_of_endings);
        let begin = || name.strip_suffix(field);
        ends || begin().is_some_and(|begin| HEMISPHERE_BEGINNINGS.contains(&begin))
    };
    let is_of_coordinate = |field: &&str| name != *field && is_of(field);
    [0, 1].into_iter().find(|coordinate| {
        SIDE_PAIRS[*coordinate].iter().any(|pair| is_of(pair))
            || COORDINATES[*coordinate].iter().any(is_of_coordinate)
    })
}

/// Returns whether a string consists only of [`HEMISPHERE_ENDINGS`], or is empty. Returns `false`
/// for a very long string, so that the recursion is bounded.
fn is_made_of_endings(text: &str) -> bool {
    if text.len() > NAME_BYTES_MAX {
        return false;
    }
    let begins = |ending: &&str| text.strip_prefix(*ending).is_some_and(is_made_of_endings);
    text.is_empty() || HEMISPHERE_ENDINGS.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_words_and_signs_mean_south_or_west() {
        let negative = Some(Side::Negative);
        for south in ["S", " s ", "S.", "South", "Southern", "south latitude", "(S)", "Süd", "83"]
        {
            assert_eq!(side("ns", south, 0), negative, "{south}");
            assert_ne!(side("ew", south, 1), negative, "{south}");
        }
        for west in ["W", "w.", "West", "Western hemisphere", "W (west)", "Ouest", "Oeste", "87"] {
            assert_eq!(side("ew", west, 1), negative, "{west}");
            assert_ne!(side("ns", west, 0), negative, "{west}");
        }
        for sign in ["-1", "-", " - "] {
            assert_eq!([side("ns", sign, 0), side("ew", sign, 1)], [negative; 2], "{sign}");
        }
        for other in ["", "sensors", "status", "wifi", "9", "0", "true", "false", "-2"] {
            assert_eq!([side("ns", other, 0), side("ew", other, 1)], [None; 2], "{other}");
        }
        for (name, value, expected) in [
            ("E/O", "O", Side::Negative),
            ("O/E", "O", Side::Negative),
            ("O/W", "O", Side::Positive),
            ("O/W", "W", Side::Negative),
            ("E/O", "E", Side::Positive),
            ("lon_dir", "O", Side::Unclear),
            ("lon_dir", "Ost", Side::Positive),
            ("lng_negative", "true", Side::Negative),
            ("lng_negative", "0", Side::Positive),
        ] {
            assert_eq!(side(name, value, 1), Some(expected), "{name} {value}");
        }
    }

    #[test]
    fn very_long_name_is_not_a_hemisphere() {
        assert_eq!(hemisphere(&format!("lat{}", "h".repeat(1_000_000))), None);
    }

    #[test]
    fn member_may_state_both_hemispheres_or_be_a_flag() {
        let (positive, negative) = (Some(Side::Positive), Some(Side::Negative));
        for (name, value, expected) in [
            ("hemisphere", "SW", [negative, negative]),
            ("Hemisphere", "S W", [negative, negative]),
            ("hemi", "S/E", [negative, positive]),
            ("hemisphere", "south", [negative, None]),
            ("hemisphere", "W", [None, negative]),
            ("hemisphere", "northern", [positive, None]),
            ("hemisphere", "Southwest", [negative, negative]),
            ("hemisphere", "north-west", [positive, negative]),
            ("hemispheres", "S,E", [negative, positive]),
            ("nsew", "SW", [negative, negative]),
            ("hemisferio", "S", [negative, None]),
            ("Hemisfério", "Sul", [negative, None]),
            ("lat_hemisferio", "Sur", [negative, None]),
            ("Hemisphäre", "Nord", [positive, None]),
            ("hemisphere", "", [None, None]),
            ("hemisphere", "nowhere", [None, None]),
            ("hemisphere", "-1", [negative, None]),
            ("hemisphere", "é", [None, None]),
            ("south", "true", [negative, None]),
            ("isSouth", "1", [negative, None]),
            ("is_west", "true", [None, negative]),
            ("north", "false", [negative, None]),
            ("nsi", "S", [negative, None]),
            ("n_or_s", "S", [negative, None]),
            ("E/O", "O", [None, negative]),
            ("lat_sign", "-1", [negative, None]),
            ("latitude_cardinal_direction", "S", [negative, None]),
            ("hemisphere_ns", "S", [negative, None]),
            ("NS_Ind", "S", [negative, None]),
            ("lonLetter", "W", [None, negative]),
            // A band of MGRS, an angle, and other words.
            ("lat_band", "S", [None, None]),
            ("lat_zone", "S", [None, None]),
            ("lateral", "S", [None, None]),
            ("long_name", "West", [None, None]),
            ("ref_lat", "83", [None, None]),
            ("lat", "S", [None, None]),
            // Components of a velocity, sides of a box, and the quadrant of a city.
            ("north", "0", [None, None]),
            ("south", "1", [None, None]),
            ("quadrant", "SW", [None, None]),
            ("dest/ns", "S", [None, None]),
        ] {
            assert_eq!(sides(name, value), expected, "{name} {value}");
        }
    }
}
