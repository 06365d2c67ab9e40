//! Recognises the words of a date: names of months and weekdays, and abbreviations of zones.

/// The names of the months, January first, in English, German, French, Spanish, Italian,
/// Portuguese, Dutch, Swedish, Danish, Polish and Russian.
const MONTHS: [&[&str]; 12] = [
    &[
        "jan",
        "january",
        "januar",
        "janvier",
        "janv",
        "ene",
        "enero",
        "gen",
        "gennaio",
        "janeiro",
        "januari",
        "styczeń",
        "stycznia",
        "sty",
        "января",
        "янв",
    ],
    &[
        "feb",
        "february",
        "februar",
        "février",
        "févr",
        "febrero",
        "febbraio",
        "fevereiro",
        "fev",
        "februari",
        "luty",
        "lutego",
        "lut",
        "февраля",
        "февр",
        "фев",
    ],
    &[
        "mar",
        "march",
        "märz",
        "mars",
        "marzo",
        "março",
        "maart",
        "mrt",
        "marts",
        "marca",
        "марта",
        "мар",
    ],
    &["apr", "april", "avril", "avr", "abr", "abril", "aprile", "kwietnia", "kwi", "апреля", "апр"],
    &["may", "mai", "mayo", "maggio", "mag", "maio", "mei", "maj", "maja", "мая", "май"],
    &[
        "jun", "june", "juni", "juin", "junio", "giugno", "giu", "junho", "czerwca", "cze", "июня",
        "июн",
    ],
    &[
        "jul", "july", "juli", "juillet", "juil", "julio", "luglio", "lug", "julho", "lipca",
        "lip", "июля", "июл",
    ],
    &[
        "aug",
        "august",
        "août",
        "ago",
        "agosto",
        "augustus",
        "augusti",
        "sierpnia",
        "sie",
        "августа",
        "авг",
    ],
    &[
        "sep",
        "sept",
        "september",
        "septembre",
        "septiembre",
        "settembre",
        "set",
        "setembro",
        "września",
        "wrz",
        "сентября",
        "сент",
        "сен",
    ],
    &[
        "oct",
        "october",
        "okt",
        "oktober",
        "octobre",
        "octubre",
        "ottobre",
        "ott",
        "outubro",
        "out",
        "października",
        "paź",
        "октября",
        "окт",
    ],
    &[
        "nov",
        "november",
        "novembre",
        "noviembre",
        "novembro",
        "listopada",
        "lis",
        "ноября",
        "нояб",
        "ноя",
    ],
    &[
        "dec",
        "december",
        "dez",
        "dezember",
        "déc",
        "décembre",
        "dic",
        "diciembre",
        "dicembre",
        "dezembro",
        "grudnia",
        "gru",
        "декабря",
        "дек",
    ],
];
/// The names of the weekdays, Monday first, in the languages of the months. `mar` is missing: it
/// is March, too.
const WEEKDAYS: [&[&str]; 7] = [
    &[
        "mon",
        "monday",
        "mo",
        "montag",
        "lun",
        "lundi",
        "lunes",
        "lunedì",
        "segunda",
        "maandag",
        "poniedziałek",
        "понедельник",
        "пн",
    ],
    &[
        "tue",
        "tues",
        "tuesday",
        "di",
        "dienstag",
        "mardi",
        "martes",
        "martedì",
        "terça",
        "dinsdag",
        "wtorek",
        "вторник",
        "вт",
    ],
    &[
        "wed",
        "wednesday",
        "mi",
        "mittwoch",
        "mer",
        "mercredi",
        "mié",
        "miércoles",
        "mercoledì",
        "quarta",
        "woensdag",
        "środa",
        "среда",
        "ср",
    ],
    &[
        "thu",
        "thur",
        "thurs",
        "thursday",
        "do",
        "donnerstag",
        "jeu",
        "jeudi",
        "jue",
        "jueves",
        "gio",
        "giovedì",
        "quinta",
        "donderdag",
        "czwartek",
        "четверг",
        "чт",
    ],
    &[
        "fri",
        "friday",
        "fr",
        "freitag",
        "ven",
        "vendredi",
        "vie",
        "viernes",
        "venerdì",
        "sexta",
        "vrijdag",
        "piątek",
        "пятница",
        "пт",
    ],
    &[
        "sat",
        "saturday",
        "sa",
        "samstag",
        "sonnabend",
        "sam",
        "samedi",
        "sáb",
        "sábado",
        "sab",
        "sabato",
        "zaterdag",
        "sobota",
        "суббота",
        "сб",
    ],
    &[
        "sun",
        "sunday",
        "so",
        "sonntag",
        "dim",
        "dimanche",
        "dom",
        "domingo",
        "domenica",
        "zondag",
        "niedziela",
        "воскресенье",
        "вс",
    ],
];
/// Words that are dropped between the parts of a date, or between the date and its time of day.
const CONNECTING: [&str; 13] =
    ["at", "um", "de", "of", "-", "à", "à", "le", "del", "alle", "às", "kl", "г"];

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
    if text.contains(['年', '년']) {
        return Some(from_east_asia(text));
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
        } else if !(CONNECTING.contains(&lower.trim_end_matches('.')) && rest.is_empty()) {
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

/// Rewrites a date and a time of day with Chinese, Japanese or Korean signs after its numbers:
/// `2026年11月26日 10时15分07秒`.
fn from_east_asia(text: &str) -> String {
    let marks = [
        ("년 ", "-"),
        ("월 ", "-"),
        ("年", "-"),
        ("月", "-"),
        ("년", "-"),
        ("월", "-"),
        ("日", " "),
        ("일", " "),
        ("時", ":"),
        ("时", ":"),
        ("点", ":"),
        ("시 ", ":"),
        ("시", ":"),
        ("分", ":"),
        ("분 ", ":"),
        ("분", ":"),
    ];
    let rewritten =
        marks.iter().fold(text.to_owned(), |text, (mark, other)| text.replace(mark, other));
    rewritten.trim_end_matches(['秒', '초', ':', ' ']).to_owned()
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
            ("2026年11月26日 10時15分07秒", Some("2026-11-26  10:15:07")),
            ("2026年11月26日10时15分", Some("2026-11-26 10:15")),
            ("2026년 11월 26일 10시 15분 07초", Some("2026-11-26  10:15:07")),
            ("jeudi 26 novembre 2026 à 10:15", Some("2026-11-26 10:15")),
            ("26 лист. 2026 10:15", None),
            ("26 нояб. 2026 г., 10:15:07", Some("2026-11-26 10:15:07")),
            ("26 lis 2026 10:15", Some("2026-11-26 10:15")),
            ("giovedì 26 novembre 2026 10:15", Some("2026-11-26 10:15")),
            ("Do, 26.11.2026 10:15", Some("26.11.2026 10:15")),
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
