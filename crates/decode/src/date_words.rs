//! Recognises the words of a date: names of months and weekdays, and abbreviations of zones.

/// The names of the months, January first, in English, German, French and Spanish.
const MONTHS: [&[&str]; 12] = [
    &["jan", "january", "januar", "janvier", "janv", "ene", "enero"],
    &["feb", "february", "februar", "février", "févr", "febrero"],
    &["mar", "march", "märz", "mars", "marzo"],
    &["apr", "april", "avril", "avr", "abr", "abril"],
    &["may", "mai", "mayo"],
    &["jun", "june", "juni", "juin", "junio"],
    &["jul", "july", "juli", "juillet", "juil", "julio"],
    &["aug", "august", "août", "ago", "agosto"],
    &["sep", "sept", "september", "septembre", "septiembre"],
    &["oct", "october", "okt", "oktober", "octobre", "octubre"],
    &["nov", "november", "novembre", "noviembre"],
    &["dec", "december", "dez", "dezember", "déc", "décembre", "dic", "diciembre"],
];
/// The names of the weekdays, Monday first.
const WEEKDAYS: [&[&str]; 7] = [
    &["mon", "monday"],
    &["tue", "tues", "tuesday"],
    &["wed", "wednesday"],
    &["thu", "thur", "thurs", "thursday"],
    &["fri", "friday"],
    &["sat", "saturday"],
    &["sun", "sunday"],
];
/// Words that are dropped between the parts of a date, or between the date and its time of day.
const CONNECTING: [&str; 5] = ["at", "um", "de", "of", "-"];

/// Returns the number of a month, 1 for January.
pub(super) fn month(name: &str) -> Option<usize> {
    let name = name.trim_end_matches('.').to_lowercase();
    MONTHS.iter().position(|names| names.contains(&&*name)).map(|at| at + 1)
}

/// Returns the weekday that a time begins with: 1 for Monday. `None` if it begins with none.
pub(super) fn weekday(text: &str) -> Option<i8> {
    let word =
        text.split([' ', ',']).next().filter(|word| word.starts_with(char::is_alphabetic))?;
    let name = word.trim_end_matches('.').to_lowercase();
    let at = WEEKDAYS.iter().position(|names| names.contains(&&*name))?;
    i8::try_from(at + 1).ok()
}

/// Rewrites a date with the name of its month in digits: `2026-11-26`, followed by the rest of the
/// string. Removes the name of a weekday. Returns `None` if the string has no such date and no
/// weekday.
///
/// Examples: `Thu, 26 Nov 2026 10:15:00 +0000` (RFC 2822), `Thu Nov 26 10:15:00 UTC 2026` (`date`),
/// `Nov 26, 2026, 10:15 AM`, `26. November 2026 10:15`, `2026年11月26日 10:15`.
pub(super) fn numeric_date(text: &str) -> Option<String> {
    // The T and the Z of RFC 3339 are not words.
    let is_in_word = |c: char| c.is_alphabetic() && !"TtZz".contains(c);
    if text.len() > 100 || !text.contains(is_in_word) {
        return None;
    }
    if text.contains('年') {
        return Some(text.replace(['年', '月'], "-").replace('日', " "));
    }
    let words = text.split_whitespace().map(|word| word.trim_end_matches(','));
    let (mut day, mut month_number, mut year, mut rest) = (None, None, None, Vec::new());
    let mut has_weekday = false;
    for (n, word) in words.enumerate() {
        let lower = word.to_lowercase();
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let is_ordinal = [".", "", "st", "nd", "rd", "th"].contains(&&lower[digits..]);
        if n == 0 && weekday(word).is_some() {
            has_weekday = true;
        } else if let (None, Some(number)) = (month_number, month(word)) {
            month_number = Some(number);
        } else if digits == 4 && word.len() == 4 && year.is_none() {
            year = Some(word);
        } else if matches!(digits, 1 | 2) && is_ordinal && day.is_none() {
            day = Some(&word[..digits]);
        } else if !(CONNECTING.contains(&&*lower) && rest.is_empty()) {
            rest.push(word);
        }
    }
    let rest = rest.join(" ");
    match (year, month_number, day) {
        (Some(year), Some(month), Some(day)) => Some(format!("{year}-{month}-{day} {rest}")),
        (None, None, None) if has_weekday => Some(rest),
        _ => None,
    }
}

/// Returns whether a string may be the abbreviation of a zone.
pub(super) fn is_abbreviation(text: &str) -> bool {
    (3..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Returns the English abbreviation of a zone, as IANA's database has it.
pub(super) fn in_english(abbreviation: &str) -> &str {
    match abbreviation {
        "MEZ" => "CET",
        "MESZ" => "CEST",
        english => english,
    }
}

/// Returns an example of a zone for an abbreviation: `, such as Europe/Berlin` for CET. Returns an
/// empty string if the abbreviation is unknown.
pub(super) fn zone_example(abbreviation: &str) -> String {
    const ZONES: [(&[&str], &str); 11] = [
        (&["EST", "EDT"], "America/New_York"),
        (&["CST", "CDT"], "America/Chicago"),
        (&["MST", "MDT"], "America/Denver"),
        (&["PST", "PDT"], "America/Los_Angeles"),
        (&["WET", "WEST"], "Europe/Lisbon"),
        (&["CET", "CEST"], "Europe/Berlin"),
        (&["EET", "EEST"], "Europe/Athens"),
        (&["BST"], "Europe/London"),
        (&["IST"], "Asia/Kolkata"),
        (&["JST"], "Asia/Tokyo"),
        (&["AEST", "AEDT"], "Australia/Sydney"),
    ];
    let zone = ZONES.iter().find(|(names, _)| names.contains(&in_english(abbreviation)));
    zone.map_or(String::new(), |(_, zone)| format!(", such as {zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_in_words_is_rewritten_in_digits() {
        for (text, expected) in [
            ("Thu, 26 Nov 2026 10:15:00 +0000", Some("2026-11-26 10:15:00 +0000")),
            ("Thu Nov 26 10:15:00 UTC 2026", Some("2026-11-26 10:15:00 UTC")),
            ("Nov 6, 2026, 10:15:00 AM", Some("2026-11-6 10:15:00 AM")),
            ("26. November 2026 10:15", Some("2026-11-26 10:15")),
            ("March 3rd 2026 at 10:15", Some("2026-3-3 10:15")),
            ("26 de noviembre de 2026 10:15", Some("2026-11-26 10:15")),
            ("Thu 2026-11-26 10:15:00", Some("2026-11-26 10:15:00")),
            ("2026年11月26日 10:15:00", Some("2026-11-26  10:15:00")),
            // "marraskuu", Finnish for November, must not be taken for "mar".
            ("26 marraskuu 2026 10:15", None),
            ("2026-11-26T10:15:00Z", None),
            ("26 Nov 26 10:15:00", None),
            ("Nov 2026 10:15", None),
            ("yesterday", None),
            ("é é", None),
        ] {
            assert_eq!(numeric_date(text).as_deref(), expected, "{text}");
        }
    }
}
