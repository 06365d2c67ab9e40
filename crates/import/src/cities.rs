//! Looks up the zones of the IANA database and their cities.

use std::collections::HashSet;
use std::sync::LazyLock;

use jiff::tz::TimeZone;

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
