//! Parses and explains notations of times that spreadsheets and other languages use.

use std::borrow::Cow;

use jiff::civil::Date;

/// AM and PM in Chinese, Japanese and Korean, each with whether it is PM. These words come before
/// the time of day.
pub const EAST_ASIAN_MERIDIEMS: [(&str, bool); 6] = [
    ("上午", false),
    ("下午", true),
    ("午前", false),
    ("午後", true),
    ("오전", false),
    ("오후", true),
];

/// Moves AM and PM in Chinese, Japanese and Korean from before the time of day to its end.
pub(super) fn with_meridiem_at_end(text: &str) -> Cow<'_, str> {
    let mut meridiems = EAST_ASIAN_MERIDIEMS.iter();
    let found = meridiems.find(|(word, _)| !text.is_ascii() && text.contains(word));
    found.map_or(Cow::Borrowed(text), |(word, is_pm)| {
        let meridiem = if *is_pm { "PM" } else { "AM" };
        Cow::Owned(format!("{} {meridiem}", text.replacen(word, "", 1).trim_end()))
    })
}

/// Explains a number that is a time of a spreadsheet: days since 1899-12-30, from 1954 to 2064.
pub(super) fn explain_days(number: f64) -> Option<&'static str> {
    (20_000.0..60_000.0).contains(&number).then_some(
        "is a spreadsheet's number of days: format the column as yyyy-mm-dd hh:mm:ss, and save the \
         file again",
    )
}

/// Explains a string that a spreadsheet writes instead of a time.
pub(super) fn explain_spreadsheet(text: &str) -> Option<&'static str> {
    if text.starts_with('#') && text.chars().all(|c| c == '#') {
        return Some(
            "is what a spreadsheet shows if the column is too narrow: widen it, and save again",
        );
    }
    let days: Option<f64> = text.replacen(',', ".", 1).parse().ok();
    if let Some(why) = days.and_then(explain_days) {
        return Some(why);
    }
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_grouped = text.chars().all(|c| c.is_ascii_digit() || " .,'\u{a0}\u{202f}".contains(c));
    if digits >= 9 && is_grouped && digits < text.chars().count() {
        return Some("is a number with separators: write a decimal point, and no other separator");
    }
    // Excel shows `15:07.0` for 10:15:07.
    let (minutes, seconds) = text.split_once(':')?;
    let is_short = [minutes, seconds.split(['.', ',']).next()?]
        .iter()
        .all(|part| part.len() <= 2 && part.parse::<u8>().is_ok_and(|number| number < 60));
    (is_short && seconds.contains(['.', ',']) && seconds.len() <= 6).then_some(
        "has lost its date and hour: Excel shows such times as mm:ss.0; format the column as \
         yyyy-mm-dd hh:mm:ss, and save the file again",
    )
}

/// Checks the weekday that a time states: 1 for Monday. A neighbouring day is accepted, since a
/// device may take the weekday from its local time and the date from UTC. A Sunday is also
/// accepted: firmware that never sets `tm_wday` states Sunday for every date.
///
/// # Errors
/// The date falls on another weekday, so either the date or the weekday is wrong.
pub(super) fn check_weekday(date: Date, stated: Option<i8>) -> Result<(), String> {
    const SUNDAY: i8 = 7;
    let weekday = date.weekday();
    let is_accepted = |stated: i8| {
        let days = (stated - weekday.to_monday_one_offset()).rem_euclid(7);
        stated == SUNDAY || matches!(days, 0 | 1 | 6)
    };
    if stated.is_none_or(is_accepted) {
        return Ok(());
    }
    Err(format!(
        "{date} is a {weekday:?}, and the time states another weekday: which is right? Leave out \
         the weekday if the date is right"
    ))
}

/// Removes a remark after an offset: `GMT+0100 (Central European Standard Time)`.
pub(super) fn without_remark(zone: &str) -> &str {
    zone.split_once(" (").filter(|_| zone.ends_with(')')).map_or(zone, |(zone, _)| zone)
}
