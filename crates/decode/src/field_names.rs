//! Lists the names of the fields in milepost's own and in other formats, and finds the field that a
//! misspelt name stands for.

/// Normalises a name: lower case, without spaces, `_`, `-` and `.`.
pub(super) fn normalised(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ' | '.')).collect::<String>().to_lowercase()
}

/// Returns the words of a path in lower case: `gps`, `boot` and `time` for `gps/bootTime`.
pub(super) fn words(path: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    let mut chars = path.chars().peekable();
    while let Some(c) = chars.next() {
        let is_next_lower = chars.peek().is_some_and(|next| next.is_lowercase());
        let begins_word = c.is_uppercase() && (!before.is_uppercase() || is_next_lower);
        if begins_word || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Names of the time that milepost's own format reads, the preferred one first.
pub(super) const TIME_NAMES: [&str; 6] = ["ts", "timestamp", "time", "datetime", "fixtime", "tst"];
/// Words in names of times.
pub(super) const TIME_WORDS: [&str; 6] = ["time", "date", "stamp", "epoch", "utc", "when"];
/// Each field with its names in other formats.
const ALIASES: [(&str, &[&str]); 8] = [
    ("lat", &["latitude", "gpslat", "gpslatitude", "y"]),
    ("lng", &["lon", "long", "longitude", "gpslon", "gpslng", "gpslongitude", "x"]),
    ("ts", &TIME_NAMES),
    ("speed", &["velocity", "vel", "spd", "sog", "groundspeed"]),
    ("heading", &["course", "bearing", "cog", "hdg", "direction", "track"]),
    ("alt", &["altitude", "ele", "elevation", "height"]),
    ("acc", &["accuracy", "hacc", "horizontalaccuracy", "horizontal_accuracy"]),
    ("seq", &["sequence", "seqno", "counter"]),
];

/// Length of the shortest name that is compared with a misspelt name. A shorter name resembles too
/// many other words.
const COMPARED_BYTES_MIN: usize = 5;

/// Returns the milepost field that `name` may stand for: a field that has this or a similar name in
/// some format. `None` if no field has a similar name.
pub fn suggested_field(name: &str) -> Option<&'static str> {
    let name = normalised(name.rsplit('/').next().unwrap_or(name));
    let alias = ALIASES.iter().find(|(field, aliases)| *field == name || aliases.contains(&&*name));
    let is_time = TIME_WORDS.iter().any(|word| name.contains(word));
    let similar = || {
        let all = ALIASES.iter().flat_map(|(field, aliases)| {
            std::iter::once(*field).chain(aliases.iter().copied()).map(move |alias| (*field, alias))
        });
        let is_compared = |field: &str, alias: &str| {
            alias.len() >= COMPARED_BYTES_MIN && (field == "ts" || !is_time)
        };
        all.filter(|(field, alias)| is_compared(field, alias))
            .find(|(_, alias)| distance_is_small(alias, &name))
    };
    alias.map(|(field, _)| *field).or_else(|| similar().map(|(field, _)| field))
}

/// Returns all names of these fields in milepost's own and in other formats.
#[cfg(test)]
pub(super) fn all_names(fields: &[&'static str]) -> impl Iterator<Item = &'static str> {
    let all = ALIASES.iter().filter(move |(field, _)| fields.contains(field));
    all.flat_map(|(field, aliases)| std::iter::once(*field).chain(aliases.iter().copied()))
}

/// Returns whether a normalised name is the field's name in milepost's own or in another format.
pub(super) fn is_name_of(field: &str, name: &str) -> bool {
    let mut all = ALIASES.iter();
    all.any(|(known, aliases)| *known == field && (*known == name || aliases.contains(&name)))
}

/// Returns whether the Levenshtein distance of two names is small: at most 2, or at most 1 if the
/// shorter name has up to seven letters. Names of fewer than four letters never match.
fn distance_is_small(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let max = if a.len().min(b.len()) <= 7 { 1 } else { 2 };
    if a.len().abs_diff(b.len()) > max || b.len() < 4 {
        return false;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, char_a) in a.iter().enumerate() {
        let mut above = row[0];
        row[0] = i + 1;
        for (j, char_b) in b.iter().enumerate() {
            let change = above + usize::from(char_a != char_b);
            above = row[j + 1];
            row[j + 1] = change.min(above + 1).min(row[j] + 1);
        }
    }
    row[b.len()] <= max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_split_into_its_words() {
        for (path, expected) in [
            ("gps/bootTime", "gps boot time"),
            ("GPSTime", "gps time"),
            ("last_update-check", "last update check"),
            ("recordedAt", "recorded at"),
            ("ts", "ts"),
            ("", ""),
        ] {
            assert_eq!(words(path).join(" "), expected, "{path}");
        }
    }

    #[test]
    fn misspelt_name_suggests_the_intended_field() {
        for (name, field) in [
            ("hedding", Some("heading")),
            ("accuracy", Some("acc")),
            ("Latitude", Some("lat")),
            ("gps_lat", Some("lat")),
            ("coords/altitude", Some("alt")),
            ("time_stamp", Some("ts")),
            ("longitud", Some("lng")),
            ("battery", None),
            ("hdop", None),
            ("sat", None),
            ("temp", None),
            ("latency", None),
            ("plate", None),
            ("gps_date", None),
            ("gps_alt", None),
        ] {
            assert_eq!(suggested_field(name), field, "{name}");
        }
    }
}
