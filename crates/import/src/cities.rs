//! Looks up the zones of the IANA database and their cities.

use std::collections::HashSet;
use std::sync::LazyLock;

use jiff::tz::TimeZone;

use super::names::{is_name_of, words};
use milepost_decode::{field_in_other_language, is_date_in_other_language};

/// Returns the zone of an IANA name with an area, such as `Europe/Berlin`.
pub(super) fn area_zone(name: &str) -> Option<TimeZone> {
    let may_be = name.contains('/') && name.len() <= 40 && name.starts_with(char::is_alphabetic);
    if may_be { TimeZone::get(name).ok() } else { None }
}

/// Cities of the zones of the IANA database, in lower case: `paris`, `new_york`.
static CITIES: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let names = jiff::tz::db().available();
    let cities = names.filter_map(|name| {
        let (area, city) = name.as_str().rsplit_once('/')?;
        let is_city = area != "Etc" && city.len() >= 4 && !city.contains(char::is_numeric);
        is_city.then(|| city.to_lowercase())
    });
    cities.collect()
});

/// Returns whether a text is the city of a zone of the IANA database, such as `Paris`.
pub(super) fn is_city_of_zone(text: &str) -> bool {
    !text.is_empty() && CITIES.contains(&text.replace(' ', "_").to_lowercase())
}

/// Cities and regions of zones whose names also mean something else: `time_center` names no zone.
const OTHER_MEANINGS: [&str; 22] = [
    "acre",
    "canary",
    "center",
    "central",
    "christmas",
    "continental",
    "east",
    "easter",
    "general",
    "knox",
    "midway",
    "nome",
    "north",
    "oral",
    "resolute",
    "reunion",
    "salta",
    "south",
    "troll",
    "virgin",
    "wake",
    "west",
];

/// Returns whether the name of a column ends in a word for a time or date, followed by the city of
/// a zone. An example is `timestamp_berlin`.
pub(super) fn ends_in_city(name: &str) -> bool {
    let is_time = |word: &String| {
        let translated = field_in_other_language(word);
        is_name_of("ts", word)
            || is_name_of("date", word)
            || translated == Some("ts")
            || is_date_in_other_language(word)
    };
    let words = words(name);
    let city = words.iter().rposition(is_time).map(|at| words[at + 1..].join("_"));
    city.is_some_and(|city| !OTHER_MEANINGS.contains(&&*city) && is_city_of_zone(&city))
}
