//! Recognises names of units, such as `speed_unit`, `unitSpeed` or `Einheit`.

use super::announced::{announces, may_announce};
use super::field_names::{is_name_of, normalised};
use super::json::is_unset;
use super::spelled_unit::{Spelled, spelled};
use super::translations::field_in_other_language;
use super::unit::Quantity;

/// Words for a unit in languages other than English, as [`normalised`] returns them. The first
/// match counts, so a long word comes before the shorter words with which it begins or ends.
const WORDS: [&str; 31] = [
    "unidades",
    "unidade",
    "unidad",
    "unités",
    "unité",
    "unites",
    "unite",
    "unità",
    "unita",
    "einheiten",
    "einheit",
    "eenheden",
    "eenheid",
    "enheter",
    "enhet",
    "enheder",
    "enhed",
    "jednostka",
    "jednotka",
    "yksikkö",
    "birimi",
    "birim",
    "satuan",
    "единицаизмерения",
    "единицыизмерения",
    "единица",
    "единицы",
    "单位",
    "單位",
    "単位",
    "단위",
];
/// Words between the word for a unit and the name of a field, as in `unidad_de_velocidad`.
const BETWEEN: [&str; 8] = ["of", "dela", "della", "delle", "del", "der", "de", "di"];
/// Words for a measurement, as in `unit_of_measurement`, which name no field.
const MEASURE: [&str; 7] =
    ["measurement", "measure", "medida", "medição", "mesure", "misura", "измерения"];
/// Maximum length of the name of a unit in bytes.
const NAME_BYTES_MAX: usize = 60;

/// Units that are not read, as [`normalised`] returns them.
const UNREAD_SPEEDS: [&str; 15] = [
    "m/min", "m/h", "km/min", "mi/min", "ft/s", "ft/sec", "ft/min", "fps", "fpm", "yd/s", "in/s",
    "mach", "min/km", "min/mi", "s/km",
];
const UNREAD_LENGTHS: [&str; 10] =
    ["yd", "yard", "yards", "mi", "mile", "miles", "nmi", "inch", "inches", "fathoms"];
/// Units of angles that are not read. `grad` is missing, because it is a degree in German.
const UNREAD_ANGLES: [&str; 9] =
    ["gon", "gons", "gradian", "gradians", "mil", "mils", "turn", "turns", "arcmin"];

/// Returns whether the text is a unit of the quantity that milepost does not read, such as `m/min`.
pub(super) fn is_unread_unit(quantity: Quantity, text: &str) -> bool {
    let units = match quantity {
        Quantity::Speed => &UNREAD_SPEEDS[..],
        Quantity::Length => &UNREAD_LENGTHS,
        Quantity::Angle => &UNREAD_ANGLES,
    };
    units.contains(&&*normalised(text)) || spelled(quantity, text) == Some(Spelled::Unread)
}

/// Returns whether the key names a unit, such as `speed_unit`, `unitSpeed` or `alt_uom`, or
/// announces how values are written, such as `speed_scale`.
#[inline]
pub(super) fn is_unit(key: &[u8]) -> bool {
    let ([rest @ .., b's' | b'S'] | rest) = key;
    match rest {
        [.., b'u' | b'U', b'n' | b'N', b'i' | b'I', b't' | b'T']
        | [.., b'u' | b'U', b'o' | b'O', b'm' | b'M'] => true,
        _ => may_be_unit(rest) && is_unit_in_words(key),
    }
}

/// Returns whether the name names a unit, such as `speed_unit` or `Einheit`, or announces how
/// values are written, such as `speed_scale`.
#[must_use]
pub fn names_unit(name: &str) -> bool {
    is_unit(name.as_bytes())
}

/// Returns whether a key that does not end in `unit` may name a unit; reads only a few bytes.
/// `key`: the key without the `s` at its end, if it has one.
#[inline]
fn may_be_unit(key: &[u8]) -> bool {
    let begins = key.first_chunk().is_some_and(|first: &[u8; 3]| {
        let lower = first.map(|byte| byte | 0x20);
        matches!(
            &lower,
            b"uni" | b"uom" | b"ein" | b"een" | b"enh" | b"jed" | b"yks" | b"sat" | b"bir"
        )
    });
    // Compare the last five bytes: every word for a unit or for a measured field has at least five.
    // Fewer bytes would match frequent names, such as `attributes` and `odometer`.
    let ends = || {
        key.last_chunk().is_some_and(|last: &[u8; 5]| {
            let lower = last.map(|byte| byte | 0x20);
            last[4] >= 0x80
                || may_announce(key, &lower)
                || matches!(
                    &lower,
                    b"nidad"
                        | b"idade"
                        | b"unite"
                        | b"unita"
                        | b"nheit"
                        | b"eiten"
                        | b"nheid"
                        | b"heden"
                        | b"enhet"
                        | b"heter"
                        | b"enhed"
                        | b"heder"
                        | b"ostka"
                        | b"notka"
                        | b"birim"
                        | b"irimi"
                        | b"atuan"
                        | b"ement"
                        | b"asure"
                        | b"esure"
                        | b"ystem"
                )
        })
    };
    let is_system = || {
        key.last_chunk::<6>().is_some_and(|last| {
            last.eq_ignore_ascii_case(b"metric") || last.eq_ignore_ascii_case(b"perial")
        })
    };
    begins || ends() || is_system() || key.first().is_some_and(|first| *first >= 0x80)
}

/// Returns whether a key that does not end in `unit` or `uom` names a unit, such as `unitSpeed` or
/// `Einheit`.
#[cold]
fn is_unit_in_words(key: &[u8]) -> bool {
    if key.len() > NAME_BYTES_MAX {
        return false;
    }
    if announces(key) {
        return true;
    }
    let name = normalised(&String::from_utf8_lossy(key));
    let is_at_end = || WORDS.iter().any(|word| name.ends_with(word));
    if system_flag(&name).is_some() {
        return true;
    }
    // `unit_id` does not count, because `id` is no field: here, a unit is a vehicle.
    is_at_end() || without_unit(&name).is_some_and(|stem| stem.is_empty() || is_measure(stem))
}

/// Returns the system of units, `metric` or `imperial`, that a flag states if it is set. `name`:
/// the normalised name of the flag, such as `ismetric`.
fn system_flag(name: &str) -> Option<&str> {
    let system = ["is", "use"].iter().find_map(|begin| name.strip_prefix(begin)).unwrap_or(name);
    ["metric", "imperial"].contains(&system).then_some(system)
}

/// Returns whether a flag such as `isMetric` or `imperial` states that all units are imperial.
pub(super) fn says_imperial(key: &str, value: &str) -> bool {
    let name = normalised(key);
    let is_set = || ["true", "1", "yes"].iter().any(|set| value.eq_ignore_ascii_case(set));
    match system_flag(&name) {
        Some("imperial") => is_set(),
        // `metric` may also be any measured value, or its name: `"metric":"N"`.
        Some(_) if name == "metric" => value.eq_ignore_ascii_case("false"),
        Some(_) => is_unset(value),
        None => false,
    }
}

/// Returns whether the part of a name after `unit` names a measured field, as in `unit_speed`.
fn is_measure(stem: &str) -> bool {
    const FIELDS: [&str; 6] = ["lat", "lng", "speed", "heading", "alt", "acc"];
    let names_field = |stem: &str| FIELDS.iter().any(|field| is_name_of(field, stem));
    stem.starts_with("sys") || names_field(stem) || field_in_other_language(stem).is_some()
}

/// Returns a normalised name without the word for a unit at its end or beginning; `None` if the
/// name has no such word. `unitofmeasurement` counts as `unit`. For the name of a system of units,
/// such as `unitsystem`, the result is `system` or `systemof`.
pub(super) fn without_unit(name: &str) -> Option<&str> {
    const ENGLISH: [&str; 4] = ["units", "unit", "uoms", "uom"];
    if ["measurementsystem", "systemofmeasurement"].contains(&name) || system_flag(name).is_some() {
        return Some("system");
    }
    let bare = MEASURE.iter().find_map(|word| name.strip_suffix(word));
    let name = bare.map_or(name, |bare| {
        BETWEEN.iter().find_map(|word| bare.strip_suffix(word)).unwrap_or(bare)
    });
    let words = || ENGLISH.iter().chain(&WORDS);
    let end = words().find_map(|word| name.strip_suffix(word));
    let rests = || words().filter_map(|word| name.strip_prefix(word));
    // `unitspeed` begins with `units`, but the result must be `speed`. So collect the results for
    // all words, and prefer one that names a field.
    let stems = || {
        let shorter = rests()
            .flat_map(|rest| BETWEEN.iter().filter_map(move |between| rest.strip_prefix(between)));
        rests().chain(shorter)
    };
    end.or_else(|| stems().find(|stem| is_measure(stem))).or_else(|| rests().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_for_a_unit_is_seen_at_the_beginning_and_at_the_end_of_a_name() {
        for word in WORDS {
            let upper = word.to_uppercase();
            for name in [word, &upper, &format!("x_{word}"), &format!("x{upper}")] {
                assert!(names_unit(name), "{name}");
            }
            let begins = format!("{word}_speed");
            assert!(names_unit(&begins), "{begins}");
        }
        for name in ["attributes", "odometer", "event", "pressure", "status", "unit_id"] {
            assert!(!names_unit(name), "{name}");
        }
    }

    #[test]
    fn unit_of_measurement_is_seen_in_each_language() {
        for word in MEASURE {
            let name = format!("unit_of_{word}");
            assert!(names_unit(&name), "{name}");
        }
        for name in ["measurement_system", "SystemOfMeasurement", "system_of_units", "uom_speed"] {
            assert!(names_unit(name), "{name}");
        }
    }
}
