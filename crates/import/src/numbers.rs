//! Parses numbers of a CSV row that have decimal commas or thousands separators.

use std::borrow::Cow;

use milepost_decode::Quantity;

/// Columns of a CSV file that hold numbers.
#[derive(Debug, Default)]
pub(super) struct NumberColumns {
    /// Columns of fields: lat, lng, and then the others.
    pub(super) fields: Vec<usize>,
    /// Column of driver ids with `.0` after each.
    pub(super) ids: Option<usize>,
}

/// Returns a whole number without `.0` after it; returns other values unchanged.
pub(super) fn without_fraction(value: &str) -> &str {
    let whole = value.strip_suffix(".0").filter(|whole| !whole.is_empty());
    let is_number = |whole: &&str| whole.bytes().all(|byte| byte.is_ascii_digit());
    whole.filter(is_number).unwrap_or(value)
}

/// The notation of the numbers of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decimals {
    /// Decimal points, or another notation that this module does not change.
    Points,
    /// Decimal commas: `1.234,5`.
    Commas,
}

/// Returns the notation of the numbers of a row. `values`: lat, lng, and then the other numbers.
///
/// The coordinates decide if they have a comma or a point; otherwise the other numbers do. Numbers
/// that disagree count as having decimal points, so that those with commas are rejected.
pub(super) fn decimals<'v>(values: impl Iterator<Item = &'v [u8]>) -> Decimals {
    const COORDINATES: usize = 2;
    let mut decided = None;
    for (n, value) in values.enumerate() {
        if n == COORDINATES && decided.is_some() {
            break;
        }
        match (notation(value), decided) {
            (None, _) => {}
            (Some(found), None) => decided = Some(found),
            (Some(found), Some(before)) if found == before => {}
            (Some(_), Some(_)) => return Decimals::Points,
        }
    }
    decided.unwrap_or(Decimals::Points)
}

/// Returns the notation of a number; `None` if it has no decimal sign, or is not a number.
fn notation(value: &[u8]) -> Option<Decimals> {
    let value = without_unit(value);
    // A point without a digit beside it is no decimal sign, as in `34 m ü. M.`.
    let is_digit =
        |at: Option<usize>| at.and_then(|at| value.get(at)).is_some_and(u8::is_ascii_digit);
    let marks = || {
        let marks = value.iter().enumerate().filter(|(_, byte)| matches!(byte, b'.' | b','));
        let in_number =
            marks.filter(|(at, _)| is_digit(at.checked_sub(1)) || is_digit(Some(at + 1)));
        in_number.map(|(_, mark)| *mark)
    };
    let count = |mark: u8| marks().filter(|found| *found == mark).count();
    match (marks().next_back()?, count(b','), count(b'.')) {
        (b',', 1, points) if points == 0 || is_grouped(value, b'.') => Some(Decimals::Commas),
        // Groups of thousands: `1.234.567`.
        (b'.', 0, 2..) if is_grouped(value, b'.') => None,
        _ => Some(Decimals::Points),
    }
}

/// Returns a number with a decimal point and without thousands separators. Returns other values
/// unchanged, or with a `?` after them if the decoder would read another number.
pub(super) fn plain_number(value: &str, decimals: Decimals) -> Cow<'_, str> {
    // Return early in the common case: only digits, points and minus signs.
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
    if is_plain && (decimals == Decimals::Points || !value.contains('.')) {
        return Cow::Borrowed(value);
    }
    let (value, unit) = value.split_at(without_unit(value.as_bytes()).len());
    let (thousands, decimal) = match decimals {
        Decimals::Points => (b',', '.'),
        Decimals::Commas => (b'.', ','),
    };
    let is_space = |c: char| matches!(c, ' ' | '\u{a0}' | '\u{202f}' | '\'' | '’');
    let spaced = value.replace(is_space, " ");
    let grouped = [(b' ', &*spaced), (thousands, value)];
    let found = grouped.into_iter().find(|(mark, text)| {
        let has_decimals = text.contains(decimal) || text.matches(char::from(*mark)).count() > 1;
        // `1,234` alone may be a decimal comma.
        is_grouped(text.as_bytes(), *mark) && (*mark == b' ' || has_decimals)
    });
    let plain = found.map_or_else(
        || Cow::Borrowed(value),
        |(mark, text)| Cow::Owned(text.replace(char::from(mark), "")),
    );
    match decimals {
        Decimals::Points if unit.is_empty() => plain,
        Decimals::Points => Cow::Owned(format!("{plain}{unit}")),
        // In a row with decimal commas, `1.234` may mean 1234 or 1.234. The `?` makes it invalid.
        Decimals::Commas if notation(plain.as_bytes()) == Some(Decimals::Points) => {
            Cow::Owned(format!("{plain}?"))
        }
        Decimals::Commas => Cow::Owned(plain.replacen(',', ".", 1) + unit),
    }
}

/// Returns a number without the unit of a speed or a length after it, such as `km/h`.
fn without_unit(value: &[u8]) -> &[u8] {
    let Some(at) = value.iter().position(u8::is_ascii_alphabetic) else { return value };
    let (number, unit) = value.split_at(at);
    let is_unit = str::from_utf8(unit).is_ok_and(|unit| {
        [Quantity::Length, Quantity::Speed]
            .iter()
            .any(|quantity| quantity.unit_named(unit).is_some())
    });
    if is_unit { number.trim_ascii_end() } else { value }
}

/// Returns whether a number has groups of three digits with this mark between: `12 345,6`.
fn is_grouped(value: &[u8], mark: u8) -> bool {
    let value = value.trim_ascii();
    let value = value.strip_prefix(b"-").unwrap_or(value);
    let end = value.iter().position(|byte| *byte != mark && !byte.is_ascii_digit());
    let (whole, fraction) = value.split_at(end.unwrap_or(value.len()));
    let are_digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let has_valid_fraction = match fraction {
        [] => true,
        [b'.' | b',', decimals @ ..] => are_digits(decimals),
        _ => false,
    };
    let mut groups = whole.split(|byte| *byte == mark);
    let first = groups.next().unwrap_or_default();
    let later_groups: Vec<&[u8]> = groups.collect();
    has_valid_fraction
        && (1..=3).contains(&first.len())
        && !later_groups.is_empty()
        && later_groups.iter().all(|group| group.len() == 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_row_have_one_decimal_sign() {
        for (row, expected) in [
            ("52.5|13.4|34", "52.5|13.4|34"),
            ("52,5|13,4|34", "52.5|13.4|34"),
            ("-52,5|13,4|1.234,5", "-52.5|13.4|1234.5"),
            ("52,5|13,4|1.234.567", "52.5|13.4|1234567"),
            ("52,5|13,4|1 234,5", "52.5|13.4|1234.5"),
            ("52.5|13.4|1,234.5", "52.5|13.4|1234.5"),
            ("52.5|13.4|1'234.5", "52.5|13.4|1234.5"),
            ("52.5|13.4|1\u{202f}234.5", "52.5|13.4|1234.5"),
            ("52.5|13.4|1,234,567", "52.5|13.4|1234567"),
            ("52,5|13,4|1.234,5 m", "52.5|13.4|1234.5 m"),
            ("52.5|13.4|1 234 m", "52.5|13.4|1234 m"),
            ("52.5|13.4|1,234.5ft", "52.5|13.4|1234.5ft"),
            ("52,5|13,4|36,5 km/h", "52.5|13.4|36.5 km/h"),
            ("52.5|13.4|1,234 m", "52.5|13.4|1,234 m"),
            // Thousands or decimals? The value stays unchanged, so the decoder counts it as
            // invalid.
            ("52.5|13.4|1,234", "52.5|13.4|1,234"),
            ("52,5|13,4|1.234", "52.5|13.4|1.234?"),
            ("52,5|13,4|12.50", "52.5|13.4|12.50?"),
            ("52,5|13.4|1,5", "52,5|13.4|1,5"),
            ("52|13|1,5|2.5", "52|13|1,5|2.5"),
            ("52,5|13|1.5", "52.5|13|1.5?"),
            // Points in words are no decimal points. Empty values have no notation.
            ("52,5|13,4|n.a.", "52.5|13.4|n.a."),
            ("52,5|13,4|k. A.", "52.5|13.4|k. A."),
            ("52,5|13,4|34 ü.d.M.", "52.5|13.4|34 ü.d.M."),
            ("52,5|13,4|.", "52.5|13.4|."),
            ("52,5|13,4|1.000 ft", "52.5|13.4|1.000?"),
            // A group has three digits.
            ("52.5|13.4|12,34.5", "52.5|13.4|12,34.5"),
            ("52.5 N|13°24' E|1", "52.5 N|13°24' E|1"),
            ("52,5 N|13°24,5' E|1", "52.5 N|13°24.5' E|1"),
            ("52 30 N|13 240 E|", "52 30 N|13 240 E|"),
        ] {
            let values: Vec<&str> = row.split('|').collect();
            let decimals = decimals(values.iter().map(|value| value.as_bytes()));
            let read: Vec<_> = values.iter().map(|value| plain_number(value, decimals)).collect();
            assert_eq!(read.join("|"), expected, "{row}");
        }
    }
}
