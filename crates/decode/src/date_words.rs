//! Recognises the words of a date: names of months and weekdays, and abbreviations of zones.

/// The names of the months, January first, in English, German, French, Spanish, Italian,
/// Portuguese, Dutch, Swedish, Danish, Polish and Russian. Words that another Slavic language uses
/// for another month are missing: `lip` (July in Polish, June in Croatian), `lis` and `listopada`
/// (November, October).
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
        "июля", "июл",
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
    &["nov", "november", "novembre", "noviembre", "novembro", "ноября", "нояб", "ноя"],
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
/// The names of the weekdays, Monday first, in the languages of the months. `mar` is missing,
/// because it is also March.
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
const CONNECTING: [&str; 12] =
    ["at", "um", "de", "of", "-", "à", "le", "del", "alle", "às", "kl", "г"];

/// Returns the number of a month, 1 for January.
pub(super) fn month(name: &str) -> Option<usize> {
    let name = name.trim_end_matches('.').to_lowercase();
    MONTHS.iter().position(|names| names.contains(&&*name)).map(|at| at + 1)
}

/// Splits the name of a weekday off the beginning of a time: `Thu, 26 Nov 2026`. Returns the
/// weekday, 1 for Monday, and the rest of the string. Returns `None` and the whole string if the
/// string does not begin with a weekday.
pub(super) fn split_weekday(text: &str) -> (Option<i8>, &str) {
    let is_end = |c: char| c.is_whitespace() || c == ',';
    let (word, rest) = text.split_at(text.find(is_end).unwrap_or(text.len()));
    let weekday = || {
        let name = word.trim_end_matches('.').to_lowercase();
        let at = WEEKDAYS.iter().position(|names| names.contains(&&*name))?;
        i8::try_from(at + 1).ok()
    };
    match word.starts_with(char::is_alphabetic).then(weekday).flatten() {
        Some(weekday) => (Some(weekday), rest.trim_start_matches(is_end)),
        None => (None, text),
    }
}

/// Rewrites a date with the name of a month into digits: `2026-11-26`, followed by the rest of the
/// string. `text`: a time without a weekday before it. Returns `None` if `text` has no such date.
///
/// Examples: `26 Nov 2026 10:15:00 +0000` (RFC 2822), `Nov 26 10:15:00 UTC 2026` (`date`),
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
    for word in words {
        let lower = word.to_lowercase();
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let is_ordinal = [".", "", "st", "nd", "rd", "th"].contains(&&lower[digits..]);
        if let (None, Some(number)) = (month_number, month(word)) {
            month_number = Some(number);
        } else if digits == 4 && word.len() == 4 && year.is_none() {
            year = Some(word);
        } else if matches!(digits, 1 | 2) && is_ordinal && day.is_none() {
            day = Some(&word[..digits]);
        } else if !(CONNECTING.contains(&lower.trim_end_matches('.')) && rest.is_empty()) {
            rest.push(word);
        }
    }
    let (year, month, day) = (year?, month_number?, day?);
    Some(format!("{year}-{month}-{day} {}", rest.join(" ")))
}

/// Rewrites a date and a time of day with Chinese, Japanese or Korean signs after its numbers:
/// `2026年11月26日 10时15分07秒`.
fn from_east_asia(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut is_after_sign = false;
    for c in text.chars() {
        let sign = match c {
            '年' | '月' | '년' | '월' => Some('-'),
            '時' | '时' | '点' | '시' | '分' | '분' => Some(':'),
            '日' | '일' => Some(' '),
            // Korean has a space after each sign.
            ' ' if is_after_sign => continue,
            _ => None,
        };
        joined.push(sign.unwrap_or(c));
        is_after_sign = sign.is_some_and(|sign| sign != ' ');
    }
    joined.trim_end_matches(['秒', '초', ':', ' ']).to_owned()
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

/// Explains an abbreviation that is a time scale; `None` if it may be a zone.
pub(super) fn explain_scale(abbreviation: &str) -> Option<String> {
    const SECONDS_AHEAD: [(&str, u8); 2] = [("GPST", 18), ("TAI", 37)];
    let (name, seconds) = SECONDS_AHEAD.iter().find(|(name, _)| *name == abbreviation)?;
    Some(format!("{name} is {seconds} s ahead of UTC: send the time in UTC"))
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
            ("Thu 2026-11-26 10:15:00", None),
            ("2026年11月26日 10:15:00", Some("2026-11-26  10:15:00")),
            ("2026年11月26日 10時15分07秒", Some("2026-11-26  10:15:07")),
            ("2026年11月26日10时15分", Some("2026-11-26 10:15")),
            ("2026년 11월 26일 10시 15분 07초", Some("2026-11-26  10:15:07")),
            // A space after `-` is kept, so `- 0500` does not become an offset.
            ("2026年11月26日 10:15 - 11:15", Some("2026-11-26  10:15 - 11:15")),
            ("2026年11月26日 10:15:00 - 0500", Some("2026-11-26  10:15:00 - 0500")),
            ("2026年 11月 26日 10:15 -0500", Some("2026-11-26  10:15 -0500")),
            ("jeudi 26 novembre 2026 à 10:15", Some("2026-11-26 10:15")),
            ("26 лист. 2026 10:15", None),
            ("26 нояб. 2026 г., 10:15:07", Some("2026-11-26 10:15:07")),
            ("26 paź 2026 10:15", Some("2026-10-26 10:15")),
            // November in Polish, October in Croatian.
            ("26 lis 2026 10:15", None),
            ("26 listopada 2026 10:15", None),
            ("26 lip 2026 10:15", None),
            ("giovedì 26 novembre 2026 10:15", Some("2026-11-26 10:15")),
            ("Do, 26.11.2026 10:15", None),
            // "marraskuu", Finnish for November, must not be taken for "mar".
            ("26 marraskuu 2026 10:15", None),
            ("2026-11-26T10:15:00Z", None),
            ("26 Nov 26 10:15:00", None),
            ("Nov 2026 10:15", None),
            ("yesterday", None),
            ("é é", None),
        ] {
            let (_, date) = split_weekday(text);
            assert_eq!(numeric_date(date).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn weekday_before_a_time_is_split_off() {
        for (text, expected) in [
            ("Thu, 26 Nov 2026", (Some(4), "26 Nov 2026")),
            ("Thu,2026-11-26 10:15", (Some(4), "2026-11-26 10:15")),
            ("Do. 26.11.2026", (Some(4), "26.11.2026")),
            ("niedziela\u{a0}29 listopada", (Some(7), "29 listopada")),
            ("Thu", (Some(4), "")),
            ("Thuringia 26", (None, "Thuringia 26")),
            ("mar 26 2026", (None, "mar 26 2026")),
            ("2026-11-26", (None, "2026-11-26")),
            ("", (None, "")),
        ] {
            assert_eq!(split_weekday(text), expected, "{text}");
        }
    }
}
