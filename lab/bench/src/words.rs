//! Figures as people read them.

use std::time::Duration;

/// With commas.
pub(crate) fn thousands(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8(groups.join(&b',')).expect("digits and commas")
}

pub(crate) fn repetitions(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "one repetition".to_owned(),
        more => format!("{more} repetitions"),
    }
}

pub(crate) fn minutes(duration: Duration) -> String {
    format!("{}:{:02} min", duration.as_secs() / 60, duration.as_secs() % 60)
}

/// Three digits that say something: 0.26, 7.8, 164, 2.79M.
pub(crate) fn short(value: f64) -> String {
    let (value, ending) = match value.abs() {
        size if size >= 999_500.0 => (value / 1e6, "M"),
        size if size >= 1_000.0 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{}{ending}", if text == "-0" { "0" } else { text })
}

/// A ratio; its sign stays on the same line.
pub(crate) fn times(ratio: f64) -> String {
    format!("{}\u{a0}×", short(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        let table = [(0.0, "0"), (0.26, "0.26"), (7.84, "7.84"), (163.8, "164"), (1_000.0, "1k")];
        let more = [(20_000.0, "20k"), (2_789_000.0, "2.79M"), (1e7, "10M"), (-0.0001, "0"), (0.05, "0.05")];
        for (value, wanted) in table.into_iter().chain(more) {
            assert_eq!(short(value), wanted);
        }
        assert_eq!([7_u32, 1_234, 60_000, 1_234_567].map(thousands), ["7", "1,234", "60,000", "1,234,567"]);
    }
}
