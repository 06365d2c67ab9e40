//! Finds units and reference systems that a comment of a file states, such as `# speed in mph,
//! altitude in feet` or `# datum: NAD27`.

use milepost_decode::{Quantity, field_in_other_language, names_reference_system};

/// Returns the units and reference systems that a comment states, each as a JSON object such as
/// `{"alt_unit":"ft"}`, for [`Decoder::check_frame`](milepost_decode::Decoder::check_frame).
/// `speed limit 50 km/h` states none.
pub(super) fn unit_frames(comment: &str) -> Vec<Vec<u8>> {
    let clauses = comment.split([',', ';', '\n']).take(CLAUSES_MAX);
    let clauses = clauses.flat_map(|clause| clause.split(" and "));
    let frame =
        |(name, unit): (&str, String)| serde_json::json!({ name: unit }).to_string().into_bytes();
    let stated = |clause| stated_unit(clause).map(frame).or_else(|| stated_system(clause));
    clauses.filter_map(stated).collect()
}

/// Returns the reference system that a clause such as `Coordinate system: GCJ-02` or
/// `map datum NAD27` states, as a JSON object whose key is the clause's word for it.
fn stated_system(clause: &str) -> Option<Vec<u8>> {
    const NAME_WORDS_MAX: usize = 5;
    const BEFORE_NAME: [&str; 4] = ["the", "map", "horizontal", "gps"];
    let is_separator = |c: char| c.is_whitespace() || ":=()[]\"'".contains(c);
    let (mut name, mut unread) = (Vec::new(), clause);
    for _ in 0..NAME_WORDS_MAX {
        unread = unread.trim_start_matches(is_separator);
        let (word, after) = unread.split_at(unread.find(is_separator).unwrap_or(unread.len()));
        unread = after;
        if !name.is_empty() || !BEFORE_NAME.contains(&&*word.to_lowercase()) {
            name.push(word);
        }
        if names_reference_system(&name.concat()) {
            let value = unread.trim_matches(is_separator);
            let value = value.strip_prefix("is ").unwrap_or(value).trim_start();
            return Some(serde_json::json!({ name.join(" "): value }).to_string().into_bytes());
        }
    }
    None
}

/// Maximum number of clauses of a comment that are read.
const CLAUSES_MAX: usize = 20;

/// Returns the unit that a clause states, with the name of the JSON member for it, such as
/// `speed_unit`.
fn stated_unit(clause: &str) -> Option<(&'static str, String)> {
    const SPEED: [&str; 5] = ["speed", "speeds", "velocity", "velocities", "sog"];
    const ALT: [&str; 7] =
        ["alt", "altitude", "altitudes", "elevation", "elevations", "ele", "heights"];
    const HEADING: [&str; 8] =
        ["heading", "headings", "course", "courses", "bearing", "bearings", "cog", "direction"];
    const FILLERS: [&str; 19] = [
        "unit", "units", "is", "are", "in", "all", "given", "of", "the", "ist", "sind", "einheit",
        "en", "es", "está", "unidad", "est", "unité", "unità",
    ];
    const SYSTEMS: [&str; 2] = ["imperial", "nautical"];
    let is_separator = |c: char| c.is_whitespace() || ":=()[]\"'".contains(c);
    let mut words: Vec<String> =
        clause.split(is_separator).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    let is_filler = |word: &String| FILLERS.contains(&&**word);
    let has_unit_word = words.iter().any(|word| ["unit", "units"].contains(&&**word));
    words.retain(|word| !is_filler(word));
    let (first, later_words) = words.split_first()?;
    let unit = later_words.join(" ");
    let (first, unit) = (first.trim_end_matches('.'), unit.trim_end_matches('.'));
    let translated = field_in_other_language(first);
    let unit_of = |quantity: Quantity| {
        let read = quantity.unit_named(unit).map(str::to_owned);
        read.or_else(|| quantity.is_unread_unit(unit).then(|| unit.to_owned()))
    };
    if SPEED.contains(&first) || translated == Some("speed") {
        return Some(("speed_unit", unit_of(Quantity::Speed)?));
    }
    if ALT.contains(&first) || translated == Some("alt") {
        return Some(("alt_unit", unit_of(Quantity::Length)?));
    }
    if HEADING.contains(&first) || translated == Some("heading") {
        return Some(("heading_unit", unit_of(Quantity::Angle)?));
    }
    let system = SYSTEMS.into_iter().find(|system| first == *system)?;
    (has_unit_word && later_words.is_empty()).then(|| ("units", system.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_states_a_unit_only_if_it_is_about_units() {
        for (comment, expected) in [
            ("speed in mph, altitude in feet", r#"{"speed_unit":"mph"} {"alt_unit":"ft"}"#),
            ("Speed unit: km/h", r#"{"speed_unit":"km/h"}"#),
            ("speeds are in knots and elevation (m)", r#"{"speed_unit":"knots"} {"alt_unit":"m"}"#),
            ("units: imperial", r#"{"units":"imperial"}"#),
            ("All units are imperial.", r#"{"units":"imperial"}"#),
            ("Geschwindigkeit in Knoten", r#"{"speed_unit":"knots"}"#),
            ("velocidad: nudos; altitud en pies", r#"{"speed_unit":"knots"} {"alt_unit":"ft"}"#),
            ("Höhe in Fuß", r#"{"alt_unit":"ft"}"#),
            ("speed in feet per second", r#"{"speed_unit":"feet per second"}"#),
            ("Speeds: kilometres per hour", r#"{"speed_unit":"km/h"}"#),
            ("altitude is in feet above sea level", r#"{"alt_unit":"ft"}"#),
            ("heading in degrees true", r#"{"heading_unit":"deg"}"#),
            ("course: degrees magnetic", r#"{"heading_unit":"degrees magnetic"}"#),
            ("headings are magnetic", r#"{"heading_unit":"magnetic"}"#),
            ("speed in m/min", r#"{"speed_unit":"m/min"}"#),
            ("heading home", ""),
            ("Course: Mag Mile 10k", ""),
            ("altitude in yards", r#"{"alt_unit":"yards"}"#),
            ("course 10 miles", ""),
            ("vitesse 50 km/h", ""),
            ("speed limit 50 km/h", ""),
            ("max speed: 43 mph", ""),
            ("speed, altitude, ft", ""),
            ("imperial march", ""),
            ("datum: NAD27", r#"{"datum":"NAD27"}"#),
            ("Coordinate system = GCJ-02", r#"{"Coordinate system":"GCJ-02"}"#),
            ("CRS is EPSG:4277", r#"{"CRS":"EPSG:4277"}"#),
            ("Map datum: NAD27", r#"{"datum":"NAD27"}"#),
            ("horizontal datum (NAD27)", r#"{"datum":"NAD27"}"#),
            ("the map of the datum NAD27", ""),
            ("datum", r#"{"datum":""}"#),
            ("coordinates of Tokyo", ""),
            ("altitude 300 ft", ""),
            ("", ""),
        ] {
            let frames = unit_frames(comment);
            let frames: Vec<_> =
                frames.iter().map(|frame| String::from_utf8_lossy(frame)).collect();
            assert_eq!(frames.join(" "), expected, "{comment}");
        }
    }
}
