//! Suggests strftime patterns for times whose order of day, month and year is unknown.

use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::Offset;

use super::date_words::is_abbreviation;

/// Returns the patterns that parse a time whose order of day, month and year is unknown, each with
/// the resulting time in Unix milliseconds. A time without an offset counts as UTC.
pub(super) fn patterns(text: &str) -> impl Iterator<Item = (String, i64)> {
    const DATE_PATTERNS: [&str; 3] = ["%d%m%y", "%m%d%y", "%y%m%d"];
    let text = text.trim().to_owned();
    let length = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (first, after) = text.split_at(length(&text));
    let is_mark = |c: &char| matches!(c, '/' | '-' | '.');
    let (dates, rest) = match (first.len(), after.chars().next().filter(is_mark)) {
        (8, None) => (["%d%m%Y", "%m%d%Y"].map(str::to_owned).to_vec(), after),
        (6, None) => (DATE_PATTERNS.map(str::to_owned).to_vec(), after),
        (12, None) => {
            let patterns = ["%d%m%y%H%M%S", "%y%m%d%H%M%S", "%Y%m%d%H%M"];
            (patterns.map(str::to_owned).to_vec(), after)
        }
        (14, None) => (["%Y%m%d%H%M%S", "%d%m%Y%H%M%S"].map(str::to_owned).to_vec(), after),
        (17, None) => (vec!["%Y%m%d%H%M%S%f".to_owned()], after),
        (1 | 2, Some(mark)) => {
            let (second, third) = after[1..].split_once(mark).unwrap_or_default();
            let (year, rest) = third.split_at(length(third));
            let is_name = second.starts_with(|c: char| c.is_ascii_alphabetic());
            let orders: &[[&str; 3]] = match (year.len(), is_name) {
                (4, false) => &[["%d", "%m", "%Y"], ["%m", "%d", "%Y"]],
                (2, false) => &[["%d", "%m", "%y"], ["%m", "%d", "%y"], ["%y", "%m", "%d"]],
                (2, true) => &[["%d", "%b", "%y"]],
                _ => &[],
            };
            (orders.iter().map(|order| order.join(&mark.to_string())).collect(), rest)
        }
        _ => (Vec::new(), after),
    };
    let clock =
        if first.len() > 6 && rest.is_empty() { Some(String::new()) } else { clock_pattern(rest) };
    let found: Vec<(String, i64)> = dates
        .into_iter()
        .filter_map(|date| {
            let pattern = date + clock.as_ref()?;
            let parts = BrokenDownTime::parse(&pattern, &text).ok()?;
            let time = match parts.offset() {
                Some(_) => parts.to_timestamp().ok()?,
                None => Offset::UTC.to_timestamp(parts.to_datetime().ok()?).ok()?,
            };
            Some((pattern, time.as_millisecond()))
        })
        .collect();
    found.into_iter()
}

/// Returns the pattern of a time of day, including the text before and after it.
fn clock_pattern(text: &str) -> Option<String> {
    let (between, clock) = text.split_at(text.find(|c: char| c.is_ascii_digit())?);
    let end = clock.find(|c: char| !(c.is_ascii_digit() || c == ':')).unwrap_or(clock.len());
    let (digits, mut rest) = clock.split_at(end);
    let mut pattern = match (digits.matches(':').count(), digits.len()) {
        (2, _) => "%H:%M:%S",
        (1, _) => "%H:%M",
        (0, 6) => "%H%M%S",
        (0, 4) => "%H%M",
        _ => return None,
    }
    .to_owned();
    if let Some(fraction) = rest.strip_prefix('.') {
        pattern += "%.f";
        rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    let word = rest.trim_start();
    let space = &rest[..rest.len() - word.len()];
    let meridiem = word.get(..2).filter(|two| ["am", "pm"].contains(&&*two.to_ascii_lowercase()));
    if meridiem.is_some() {
        pattern = pattern.replace("%H", "%I") + space + "%p";
        rest = &word[2..];
    }
    let zone = rest.trim_start();
    pattern += &rest[..rest.len() - zone.len()];
    pattern += match zone {
        "" | "Z" => zone,
        letters if is_abbreviation(letters) => letters,
        offset if offset.contains(':') => "%:z",
        _ => "%z",
    };
    (between.len() <= 2).then(|| format!("{between}{pattern}"))
}
