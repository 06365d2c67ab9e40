//! Parses units that are written in words, such as `kilometres per hour`, `feet above sea level` or
//! `degrees true`.

use super::unit::Quantity;

/// A unit in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelled {
    /// A unit that milepost can read; the text is the configuration's name for it, such as `km/h`.
    Unit(&'static str),
    /// A known unit that milepost cannot read, such as feet per second or degrees magnetic.
    Unread,
}

/// Maximum bytes of a unit in words.
const BYTES_MAX: usize = 60;
/// Words for a length, each list after its symbol.
const LENGTHS: [(&str, &[&str]); 9] = [
    ("km", &["km", "kms", "kilometer", "kilometers", "kilometre", "kilometres"]),
    ("m", &["m", "mtr", "mtrs", "meter", "meters", "metre", "metres"]),
    ("cm", &["cm", "centimeter", "centimeters", "centimetre", "centimetres"]),
    ("mm", &["mm", "millimeter", "millimeters", "millimetre", "millimetres"]),
    ("ft", &["ft", "foot", "feet"]),
    ("mi", &["mi", "mile", "miles"]),
    ("nmi", &["nmi", "nm"]),
    ("yd", &["yd", "yard", "yards"]),
    ("in", &["inch", "inches"]),
];
/// Words for a time, each list after its symbol.
const TIMES: [(&str, &[&str]); 3] = [
    ("s", &["s", "sec", "secs", "second", "seconds"]),
    ("min", &["min", "mins", "minute", "minutes"]),
    ("h", &["h", "hr", "hrs", "hour", "hours"]),
];
/// Remarks after a unit of length for an altitude above the sea or the ellipsoid.
const ABOVE_SEA: [&str; 13] = [
    "asl",
    "amsl",
    "msl",
    "above sea level",
    "above mean sea level",
    "above msl",
    "above the ellipsoid",
    "above ellipsoid",
    "above wgs84",
    "above wgs84 ellipsoid",
    "hae",
    "ellipsoidal",
    "wgs84",
];
/// Remarks after a unit of length for a height above the ground or the point of departure.
const ABOVE_GROUND: [&str; 7] = [
    "agl",
    "above ground",
    "above ground level",
    "above home",
    "above takeoff",
    "above take off",
    "above home point",
];
/// Points other than the sea from which an altitude may be measured.
const LEVELS: [&str; 8] = [
    "ground",
    "ground level",
    "relative to ground",
    "takeoff",
    "take off",
    "relative to takeoff",
    "home",
    "relative to home",
];
/// Remarks after `degrees` that milepost accepts. Most state that the angle counts from true north.
/// `degrees_north` and `degrees_east` of the CF (netCDF) conventions are units of coordinates.
const TRUE: [&str; 13] = [
    "true",
    "t",
    "true north",
    "from north",
    "from true north",
    "clockwise",
    "clockwise from north",
    "clockwise from true north",
    "cw from north",
    "relative to true north",
    "decimal",
    "north",
    "east",
];
/// Remarks after `degrees`, or instead of it, for an angle that counts from magnetic north.
const MAGNETIC: [&str; 7] = [
    "magnetic",
    "mag",
    "magnetic north",
    "from magnetic north",
    "clockwise from magnetic north",
    "relative to magnetic north",
    "m",
];

/// Parses a unit in words. `None`: the text is not a unit in words, or is a unit of another
/// quantity.
pub(super) fn spelled(quantity: Quantity, text: &str) -> Option<Spelled> {
    let words = words(text)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match quantity {
        Quantity::Speed => speed(&words),
        Quantity::Length => length(&words),
        Quantity::Angle => angle(&words),
    }
}

/// Returns whether `text` is a unit for angles from magnetic north: `degrees magnetic`, or
/// `magnetic` alone.
pub(super) fn is_magnetic(text: &str) -> bool {
    let Some(words) = words(text) else { return false };
    let text = words.join(" ");
    let degrees = ["degrees ", "degree ", "deg "].iter().find_map(|word| text.strip_prefix(word));
    MAGNETIC.contains(&degrees.unwrap_or(&text)) && (degrees.is_some() || text != "m")
}

/// Returns whether `text` means that an altitude is measured from the ground or the point of
/// departure.
pub(super) fn is_above_ground(text: &str) -> bool {
    let Some(words) = words(text) else { return false };
    let joined = words.concat();
    let mut known = ABOVE_GROUND.iter().chain(&LEVELS);
    known.any(|known| known.replace(' ', "") == joined)
}

/// Returns the words of a unit in lower case. A slash becomes the word `per`, and a degree sign
/// becomes `deg`. `None`: the text is too long.
fn words(text: &str) -> Option<Vec<String>> {
    if text.len() > BYTES_MAX {
        return None;
    }
    let mut words = vec![String::new()];
    for c in text.chars() {
        let word = words.last_mut()?;
        match c {
            // `a.s.l.`
            '.' | '\'' => {}
            '/' => words.extend(["per".to_owned(), String::new()]),
            '°' | 'º' => words.extend(["deg".to_owned(), String::new()]),
            _ if c.is_alphanumeric() => word.extend(c.to_lowercase()),
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    Some(words)
}

/// Returns the symbol of a word in [`LENGTHS`] or [`TIMES`].
fn symbol(list: &[(&'static str, &[&str])], word: &str) -> Option<&'static str> {
    list.iter().find(|(_, words)| words.contains(&word)).map(|(symbol, _)| *symbol)
}

/// Splits a length off the beginning of a unit's words. Returns its symbol, and the words after it.
fn split_length<'w, 't>(words: &'w [&'t str]) -> Option<(&'static str, &'w [&'t str])> {
    match words {
        ["nautical", "mile" | "miles", rest @ ..] => Some(("nmi", rest)),
        ["statute", "mile" | "miles", rest @ ..] => Some(("mi", rest)),
        [word, rest @ ..] => symbol(&LENGTHS, word).map(|length| (length, rest)),
        [] => None,
    }
}

fn speed(words: &[&str]) -> Option<Spelled> {
    if let ["knot" | "knots", "per", time] = words {
        return symbol(&TIMES, time).map(|_| Spelled::Unread);
    }
    // A pace, such as minutes per kilometre.
    if let [time, "per", length @ ..] = words
        && symbol(&TIMES, time).is_some()
    {
        return split_length(length).filter(|(_, rest)| rest.is_empty()).map(|_| Spelled::Unread);
    }
    let (length, ["per", time]) = split_length(words)? else { return None };
    Some(match (length, symbol(&TIMES, time)?) {
        ("m", "s") => Spelled::Unit("m/s"),
        ("km", "h") => Spelled::Unit("km/h"),
        ("mi", "h") => Spelled::Unit("mph"),
        ("nmi", "h") => Spelled::Unit("knots"),
        ("cm", "s") => Spelled::Unit("cm/s"),
        ("mm", "s") => Spelled::Unit("mm/s"),
        _ => Spelled::Unread,
    })
}

fn length(words: &[&str]) -> Option<Spelled> {
    let (length, remark) = split_length(words)?;
    let remark = remark.join(" ");
    if ABOVE_GROUND.contains(&&*remark) {
        return Some(Spelled::Unread);
    }
    let is_read = remark.is_empty() || ABOVE_SEA.contains(&&*remark);
    is_read.then_some(match length {
        "nmi" | "mi" | "yd" | "in" => Spelled::Unread,
        _ => Spelled::Unit(length),
    })
}

fn angle(words: &[&str]) -> Option<Spelled> {
    let text = words.join(" ");
    if is_magnetic(&text) {
        return Some(Spelled::Unread);
    }
    match words {
        ["decimal", "deg" | "degs" | "degree" | "degrees"] => Some(Spelled::Unit("deg")),
        ["deg" | "degs" | "degree" | "degrees", remark @ ..] => {
            let remark = remark.join(" ");
            let is_read = remark.is_empty() || TRUE.contains(&&*remark);
            is_read.then_some(Spelled::Unit("deg"))
        }
        _ => None,
    }
}

/// Splits a spelled-out unit off the end of a column's name, such as
/// `Speed (kilometres per hour)`, `altitude_feet_above_sea_level` or `speedMilesPerHour`. Returns
/// the name without the unit, and the unit.
pub(super) fn split_spelled(quantity: Quantity, name: &str) -> Option<(&str, Spelled)> {
    const SEPARATORS: [char; 9] = [' ', '_', '-', '.', ',', ':', '(', '[', '{'];
    let inner = name.trim_end().trim_end_matches([')', ']', '}', '.']);
    let begins = inner.match_indices(SEPARATORS).map(|(at, separator)| at + separator.len());
    let mut split = begins.filter_map(|at| {
        let rest = without_preposition(inner[..at].trim_end_matches(SEPARATORS));
        Some((rest, spelled(quantity, &inner[at..])?))
    });
    let split_camel = || {
        capitals(inner).find_map(|at| {
            let words =
                inner[at..].chars().flat_map(|c| [c.is_ascii_uppercase().then_some(' '), Some(c)]);
            let words: String = words.flatten().collect();
            let rest = &inner[..at];
            let rest = ["In", "_in"].iter().find_map(|end| rest.strip_suffix(end)).unwrap_or(rest);
            Some((rest, spelled(quantity, &words)?))
        })
    };
    split.find(|(rest, _)| !rest.is_empty()).or_else(split_camel)
}

/// Returns the indices of the capitals that begin a word inside a name such as `speedMilesPerHour`.
fn capitals(name: &str) -> impl Iterator<Item = usize> {
    let pairs = name.as_bytes().windows(2).enumerate();
    pairs
        .filter(|(_, pair)| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
        .map(|(at, _)| at + 1)
}

/// Removes the preposition before a unit, as in `Speed in km/h`.
pub(super) fn without_preposition(name: &str) -> &str {
    const MARKS: [char; 3] = [' ', '_', '-'];
    let before = ["in", "en", "em"].iter().find_map(|word| {
        let at = name.len().checked_sub(word.len())?;
        let end = name.get(at..)?;
        let before = name.get(..at)?;
        (end.eq_ignore_ascii_case(word) && before.ends_with(MARKS)).then_some(before)
    });
    before.map_or(name, |before| before.trim_end_matches(MARKS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Quantity::{Angle, Length, Speed};

    #[test]
    fn unit_in_words_is_the_unit_of_its_symbol() {
        for (quantity, text, unit) in [
            (Speed, "kilometres per hour", "km/h"),
            (Speed, "Kilometers/Hour", "km/h"),
            (Speed, "metre per second", "m/s"),
            (Speed, "Miles per hour", "mph"),
            (Speed, "statute miles per hour", "mph"),
            (Speed, "nautical miles per hour", "knots"),
            (Speed, "centimetres per second", "cm/s"),
            (Length, "metres above sea level", "m"),
            (Length, "m a.s.l.", "m"),
            (Length, "feet (AMSL)", "ft"),
            (Length, "kilometres", "km"),
            (Length, "m above WGS84 ellipsoid", "m"),
            (Angle, "degrees true", "deg"),
            (Angle, "°T", "deg"),
            (Angle, "degrees clockwise from true north", "deg"),
            (Angle, "decimal degrees", "deg"),
            (Angle, "degrees_north", "deg"),
        ] {
            assert_eq!(spelled(quantity, text), Some(Spelled::Unit(unit)), "{text}");
            assert_eq!(quantity.unit_named(text), Some(unit), "{text}");
        }
        for (quantity, text) in [
            (Speed, "feet per second"),
            (Speed, "feet/minute"),
            (Speed, "minutes per kilometre"),
            (Speed, "knots per hour"),
            (Speed, "metres per minute"),
            (Length, "yards"),
            (Length, "ft AGL"),
            (Length, "metres above ground level"),
            (Angle, "degrees magnetic"),
            (Angle, "deg (magnetic)"),
            (Angle, "°M"),
            (Angle, "magnetic"),
        ] {
            assert_eq!(spelled(quantity, text), Some(Spelled::Unread), "{text}");
            assert_eq!(quantity.unit_named(text), None, "{text}");
        }
        for (quantity, text) in [
            (Speed, "feet"),
            (Speed, "per hour"),
            (Speed, "trips per hour"),
            (Length, "m/s"),
            (Length, "metres driven"),
            (Angle, "m"),
            (Angle, "true"),
            (Angle, "degrees celsius"),
            (Angle, ""),
        ] {
            assert_eq!(spelled(quantity, text), None, "{text}");
        }
    }

    #[test]
    fn unit_in_words_is_split_off_a_name() {
        for (quantity, name, rest, unit) in [
            (Speed, "Speed (kilometres per hour)", "Speed", "km/h"),
            (Speed, "speed_kilometers_per_hour", "speed", "km/h"),
            (Speed, "Speed in nautical miles per hour", "Speed", "knots"),
            (Speed, "Speed in km/h", "Speed", "km/h"),
            (Speed, "speedMilesPerHour", "speed", "mph"),
            (Speed, "gpsSpeedMetersPerSecond", "gpsSpeed", "m/s"),
            (Speed, "SpeedInKilometersPerHour", "Speed", "km/h"),
            (Length, "altitudeFeet", "altitude", "ft"),
            (Length, "altitude [feet above sea level]", "altitude", "ft"),
            (Length, "Altitude in feet", "Altitude", "ft"),
            (Length, "Altitude (m a.s.l.)", "Altitude", "m"),
            (Angle, "course (°T)", "course", "deg"),
            (Angle, "heading (degrees true)", "heading", "deg"),
            (Angle, "latitude (degrees_north)", "latitude", "deg"),
        ] {
            assert_eq!(quantity.split_unit(name), Some((rest, unit)), "{name}");
        }
        for (quantity, name) in [
            (Speed, "speed (feet per second)"),
            (Length, "altitude (ft AGL)"),
            (Angle, "heading (deg magnetic)"),
            (Angle, "course (°M)"),
        ] {
            assert_eq!(quantity.split_unit(name), None, "{name}");
            assert!(quantity.ends_in_unread_unit(name), "{name}");
        }
        for name in ["speed", "Speed limit", "feet per second", "speed (max)"] {
            assert_eq!(Speed.split_unit(name), None, "{name}");
            assert!(!Speed.ends_in_unread_unit(name), "{name}");
        }
    }
}
