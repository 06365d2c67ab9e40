//! Suggests strftime patterns for times whose order of day, month and year is unknown, and restores
//! the leading zero that a number such as `91507` (09:15:07) has lost.

use std::borrow::Cow;

use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::Offset;

use super::date_words::is_abbreviation;

/// Returns the patterns that parse a time whose order of day, month and year is unknown. Each
/// pattern comes with the resulting time in Unix milliseconds. A time without an offset counts as
/// UTC.
pub(super) fn patterns(text: &str) -> impl Iterator<Item = (String, i64)> {
    const DATE_PATTERNS: [&str; 3] = ["%d%m%y", "%m%d%y", "%y%m%d"];
    let text = text.trim().to_owned();
    let count_digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (first, after) = text.split_at(count_digits(&text));
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
            let (year, rest) = third.split_at(count_digits(third));
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

/// Returns the pattern of a time of day, including the text before and after it. `None`: the text
/// has no time of day in a known form.
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

/// A run of conversions that parse digits, with nothing between the conversions, such as `%H%M%S`.
#[derive(Default)]
struct Run {
    conversions: usize,
    width: usize,
    begins_with_year: bool,
    /// A letter is before the digits, as in `20261126T101507`. Such a value is a string, which
    /// keeps its zeros.
    follows_letter: bool,
    /// The last conversion is `%f`, or `%N` with the same meaning, which parses any number of
    /// digits.
    is_open: bool,
    /// The last conversion is `%f` or `%N` with a number of digits, such as `%3f`.
    has_fraction: bool,
}

impl Run {
    /// Creates the run after the text between two conversions.
    fn after(literal: &str) -> Self {
        Self { follows_letter: literal.ends_with(char::is_alphabetic), ..Self::default() }
    }

    /// Returns whether the digits cannot have lost a leading zero.
    fn keeps_leading_zero(&self) -> bool {
        self.begins_with_year || self.follows_letter
    }

    /// Adds a conversion. Returns `false` if it does not parse digits alone.
    fn add(&mut self, conversion: &str) -> bool {
        let (digits, letter) = conversion.split_at(conversion.len().saturating_sub(1));
        let digits = digits.trim_start_matches(['_', '-', '0', '^', '#']);
        let width = match (letter, digits.parse()) {
            ("d" | "e" | "H" | "I" | "k" | "l" | "M" | "m" | "S" | "y", _) => 2,
            ("j", _) => 3,
            ("Y", _) => 4,
            ("f" | "N", Ok(width)) => {
                self.has_fraction = true;
                width
            }
            // Device times have hundredths or milliseconds.
            ("f" | "N", Err(_)) if digits.is_empty() => {
                self.is_open = true;
                2
            }
            _ => return false,
        };
        self.begins_with_year |= self.conversions == 0 && letter == "Y";
        self.width += width;
        self.conversions += 1;
        true
    }
}

/// Returns the end of the conversion at the start of `piece`, the text after a `%`. The conversion
/// ends with its ASCII letter. After `%%`, a piece may begin with any letter.
pub(super) fn conversion_end(piece: &str) -> usize {
    piece.find(|c: char| c.is_ascii_alphabetic()).map_or(0, |at| at + 1)
}

/// Returns whether `%f` or `%N`, which parse any number of digits, follow other digits. `%H%M%S%f`
/// hides that a leading zero is lost: `11500725` may be 01:15:00.725 or 11:50:07.25. Digits that
/// begin with the year, or follow a letter, lose none.
pub(super) fn has_open_fraction(pattern: &str) -> bool {
    let mut pieces = pattern.split('%');
    let mut run = Run::after(pieces.next().unwrap_or_default());
    pieces.any(|piece| {
        let end = conversion_end(piece);
        let (conversion, literal) = piece.split_at_checked(end).unwrap_or((piece, ""));
        let is_digits = run.add(conversion);
        let is_found = run.is_open && run.conversions > 1 && !run.keeps_leading_zero();
        if !is_digits || !literal.is_empty() {
            run = Run::after(literal);
        }
        is_digits && is_found
    })
}

/// Restores the leading zero of digits that stand for several parts of a time, such as `%H%M%S`.
/// JSON numbers and spreadsheets drop it, and then the parts shift: `11507` (01:15:07) would be
/// read as 11:50:07.
///
/// # Errors
/// More than one digit is missing, or the missing digit was not the first.
pub(super) fn with_leading_zero<'t>(text: &'t str, pattern: &str) -> Result<Cow<'t, str>, String> {
    let mut result = Cow::Borrowed(text);
    let mut run = Run::default();
    // The text has been parsed up to this index.
    let mut at = 0;
    for (index, piece) in pattern.split('%').enumerate() {
        // Each piece but the first begins with a conversion.
        let end = if index == 0 { 0 } else { conversion_end(piece) };
        let (conversion, literal) = piece.split_at_checked(end).unwrap_or((piece, ""));
        let is_digits = index > 0 && run.add(conversion);
        if !is_digits || !literal.is_empty() {
            at = restore_zero(&mut result, at, &std::mem::replace(&mut run, Run::after(literal)))?;
        }
        if index > 0 && !is_digits {
            let skips: fn(char) -> bool = match conversion {
                "A" | "a" | "B" | "b" | "h" | "p" | "P" => |c| c.is_alphabetic() || c == '.',
                _ if conversion.starts_with('.') => |c| c.is_ascii_digit() || c == '.',
                // For an offset, a zone, or a whole date or time, leave the other digits as they
                // are.
                _ => return Ok(result),
            };
            at = result.len() - result[at..].trim_start_matches(skips).len();
        }
        for c in literal.chars() {
            let rest = &result[at..];
            let after =
                if c.is_whitespace() { Some(rest.trim_start()) } else { rest.strip_prefix(c) };
            at = result.len() - after.unwrap_or(rest).len();
        }
    }
    restore_zero(&mut result, at, &run)?;
    Ok(result)
}

/// Restores the leading zero of the digits of `run`, which begin at `at`. Returns the end of the
/// digits.
fn restore_zero(text: &mut Cow<'_, str>, at: usize, run: &Run) -> Result<usize, String> {
    let start = text.len() - text[at..].trim_start().len();
    let digits = text[start..].bytes().take_while(u8::is_ascii_digit).count();
    let missing = run.width.saturating_sub(digits);
    // jiff would accept more digits than the pattern states.
    let may_lack_zero = !run.keeps_leading_zero();
    if run.has_fraction && run.conversions > 1 && digits > run.width && may_lack_zero {
        let number = &text[start..start + digits];
        return Err(format!(
            "\"{number}\" has {digits} digits, and the pattern {}: state the digits of the \
             fraction, such as %3f",
            run.width
        ));
    }
    if run.conversions < 2 || digits == 0 || missing == 0 || run.is_open && !may_lack_zero {
        return Ok(if run.conversions == 0 { at } else { start + digits });
    }
    if missing > 1 || run.is_open || run.begins_with_year {
        let number = &text[start..start + digits];
        return Err(format!(
            "\"{number}\" has lost leading zeros: send them, or save the file with this column as \
             text"
        ));
    }
    text.to_mut().insert(start, '0');
    Ok(start + digits + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fraction_after_digits_needs_a_width() {
        for pattern in
            ["%d%m%Y %H%M%S%f", "%H%M%S%f", "%d%m%Y%H%M%S%f", "%M%S%f", "%d%m%Y %H%M%S%N"]
        {
            assert!(has_open_fraction(pattern), "{pattern}");
        }
        for pattern in [
            "%Y%m%d%H%M%S%f",
            "%Y%m%dT%H%M%S%f",
            "T%H%M%S%f",
            "%H:%M:%S.%f",
            "%H%M%S.%f",
            "%H%M%S%.f",
            "%H%M%S%3f",
            "%H%M%S%3N",
            "%s %f",
            "%H:%M:%S %f",
            "%d/%m/%Y %H%M%S",
        ] {
            assert!(!has_open_fraction(pattern), "{pattern}");
        }
    }

    #[test]
    fn one_lost_leading_zero_is_restored() {
        for (text, pattern, expected) in [
            ("261126 11507", "%d%m%y %H%M%S", Some("261126 011507")),
            ("11126 101507", "%d%m%y %H%M%S", Some("011126 101507")),
            ("11126 91507", "%d%m%y %H%M%S", Some("011126 091507")),
            ("1112026 91507", "%d%m%Y %H%M%S", Some("01112026 091507")),
            ("2026-11-26 115", "%Y-%m-%d %H%M", Some("2026-11-26 0115")),
            ("91507.25 261126", "%H%M%S%.f %d%m%y", Some("091507.25 261126")),
            ("91507 261126", "%H%M%S%.f %d%m%y", Some("091507 261126")),
            ("26Nov26 91507", "%d%b%y %H%M%S", Some("26Nov26 091507")),
            ("11126101507", "%d%m%y%H%M%S", Some("011126101507")),
            ("T91507Z", "T%H%M%SZ", Some("T091507Z")),
            ("1150300 261126", "%H%M%S%2f %d%m%y", Some("01150300 261126")),
            ("11507+0100 1", "%H%M%S%z %d", Some("011507+0100 1")),
            // Unchanged, because no digit is missing, or each part stands alone.
            ("3/4/26 8:5", "%d/%m/%y %H:%M", Some("3/4/26 8:5")),
            ("01150300", "%H%M%S%f", Some("01150300")),
            ("202611241015071", "%Y%m%d%H%M%S%f", Some("202611241015071")),
            ("26.11.2026 9:15", "%d.%m.%Y %H:%M", Some("26.11.2026 9:15")),
            ("1 Nov 26 101507", "%e %b %y %H%M%S", Some("1 Nov 26 101507")),
            ("1795770000", "%s", Some("1795770000")),
            ("é", "%H%M", Some("é")),
            ("101507250 1", "%H%M%S%3f %d", Some("101507250 1")),
            ("91507250 1", "%H%M%S%3f %d", Some("091507250 1")),
            ("91507250 1", "%H%M%S%3N %d", Some("091507250 1")),
            ("20261124101507250123", "%Y%m%d%H%M%S%3f", Some("20261124101507250123")),
            ("20261124T1015071", "%Y%m%dT%H%M%S%f", Some("20261124T1015071")),
            ("20261124T101507250123", "%Y%m%dT%H%M%S%3f", Some("20261124T101507250123")),
            ("10:15:07.250000", "%H:%M:%S.%3f", Some("10:15:07.250000")),
            // More digits than the pattern states.
            ("101507250 1", "%H%M%S%2f %d", None),
            // More than one zero is missing, or perhaps none is. Or the missing digit is not the
            // first.
            ("261126 1507", "%d%m%y %H%M%S", None),
            ("261126 7", "%d%m%y %H%M%S", None),
            ("1150300", "%H%M%S%f", None),
            ("2026113 101507", "%Y%m%d %H%M%S", None),
        ] {
            let read = with_leading_zero(text, pattern);
            assert_eq!(read.as_deref().ok(), expected, "{text} {pattern}: {read:?}");
        }
    }
}
