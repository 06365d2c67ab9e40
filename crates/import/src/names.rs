//! Lists the usual names of the columns of a CSV file.

use std::borrow::Cow;

use milepost_decode::{Quantity, field_in_other_language};

/// A field, its quantity, and its usual names, as [`normalised`] returns them. The first name is
/// the preferred one.
pub(super) type FieldNames = (&'static str, Option<Quantity>, &'static [&'static str]);

/// The fields that a column can hold.
pub(super) const FIELD_NAMES: [FieldNames; 11] = [
    (
        "lat",
        Some(Quantity::Angle),
        &["lat", "latitude", "gpslat", "gpslatitude", "locationlat", "positionlat"],
    ),
    (
        "lng",
        Some(Quantity::Angle),
        &[
            "lng",
            "lon",
            "long",
            "longitude",
            "gpslon",
            "gpslng",
            "gpslongitude",
            "locationlong",
            "locationlon",
            "positionlong",
        ],
    ),
    (
        "lat_hemisphere",
        None,
        &["ns", "sn", "lathemisphere", "latitudehemisphere", "latns", "latdir"],
    ),
    (
        "lng_hemisphere",
        None,
        &[
            "ew",
            "we",
            "eo",
            "oe",
            "ow",
            "wo",
            "lnghemisphere",
            "longitudehemisphere",
            "lonhemisphere",
            "lonew",
            "londir",
        ],
    ),
    (
        "ts",
        None,
        &[
            "ts",
            "timestamp",
            "fixtime",
            "time",
            "datetime",
            "utctime",
            "gpstime",
            "timeutc",
            "utcdatetime",
            "datetimeutc",
            "utctimestamp",
            "timestamputc",
            "basedatetime",
            "gpsdatetime",
            "gpstimestamp",
        ],
    ),
    ("date", None, &["date", "utcdate", "gpsdate", "dateutc"]),
    (
        "speed",
        Some(Quantity::Speed),
        &["speed", "velocity", "groundspeed", "speedoverground", "sog"],
    ),
    (
        "heading",
        Some(Quantity::Angle),
        &["heading", "course", "bearing", "courseoverground", "cog"],
    ),
    ("alt", Some(Quantity::Length), &["alt", "altitude", "ele", "elevation", "height"]),
    ("acc", Some(Quantity::Length), &["acc", "accuracy", "hacc", "horizontalaccuracy"]),
    ("seq", None, &["seq"]),
];

/// The index of a column, and the unit that its name contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) at: usize,
    pub(super) unit: Option<&'static str>,
}

/// Returns the quantity of a field; `None` if it has no unit.
pub(super) fn quantity_of(field: &str) -> Option<Quantity> {
    let (_, quantity, _) = FIELD_NAMES.iter().find(|(name, ..)| *name == field)?;
    *quantity
}

/// Normalises a name: lower case, without white space, invisible characters, `_`, `-`, `.`, `/`,
/// `:`, `*` and brackets, and without the quotes around it.
pub(super) fn normalised(name: &str) -> String {
    const QUOTES: [char; 7] = ['\'', '"', '`', '‘', '’', '“', '”'];
    let is_quoted = name.trim_start().starts_with(QUOTES);
    let name = if is_quoted { name.trim().trim_matches(QUOTES) } else { name };
    let is_mark = |c: char| matches!(c, '_' | '-' | '.' | '/' | ':' | '*' | '(' | ')' | '[' | ']');
    let is_left_out = |c: char| c.is_whitespace() || is_invisible(c) || is_mark(c);
    name.chars().filter(|c| !is_left_out(*c)).collect::<String>().to_lowercase()
}

/// Returns the words of a name in lower case: `localTime` and `Local-Time` have two. A `+` or `-`
/// before a digit does not separate words: `UTC+2` is one word, `UTC +2` is two.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut previous, mut chars) = (' ', name.chars().peekable());
    while let Some(c) = chars.next() {
        let is_digit_next = chars.peek().is_some_and(char::is_ascii_digit);
        let is_sign = matches!(c, '+' | '-') && is_digit_next;
        let is_camel = previous.is_lowercase() && c.is_uppercase();
        let is_part = c.is_alphanumeric() || is_sign;
        if (!is_part || is_camel) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| is_part) {
            word.extend(c.to_lowercase());
        }
        previous = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns whether a character is invisible: a byte order mark, a zero-width space or joiner, a
/// mark of the direction of writing, or a soft hyphen.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | SOFT_HYPHEN)
        || matches!(c, '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

const SOFT_HYPHEN: char = '\u{ad}';

/// Returns the name of a column without invisible characters.
pub(super) fn visible_name(name: &str) -> String {
    name.replace(is_invisible, "").trim().to_owned()
}

/// Returns a value without invisible characters. A soft hyphen directly before or after a number
/// stays, because it may be the minus.
pub(super) fn visible(value: &str) -> Cow<'_, str> {
    if !value.contains(is_invisible) {
        return Cow::Borrowed(value);
    }
    let bare = value.replace(|c| is_invisible(c) && c != SOFT_HYPHEN, "");
    let inner = bare.replace(SOFT_HYPHEN, "");
    let (inner, is_digit) = (inner.trim(), |c: char| c.is_ascii_digit() || matches!(c, '.' | ','));
    let is_before = bare.trim_start().starts_with(SOFT_HYPHEN) && inner.starts_with(is_digit);
    let is_after = bare.trim_end().ends_with(SOFT_HYPHEN) && inner.ends_with(is_digit);
    let minus = |is_here: bool| if is_here { "\u{ad}" } else { "" };
    Cow::Owned(format!("{}{inner}{}", minus(is_before), minus(is_after)))
}

/// Returns the name for a column that has none.
pub(super) fn placeholder_name(at: usize) -> String {
    format!("column {}", at + 1)
}

/// Returns whether a column has a usual name of the latitude.
pub(super) fn is_latitude(name: &str) -> bool {
    is_name_of("lat", name)
}

/// Returns whether a column has one of the usual names of a field.
pub(super) fn is_name_of(field: &str, name: &str) -> bool {
    FIELD_NAMES
        .iter()
        .any(|(listed, _, names)| *listed == field && names.contains(&&*normalised(name)))
}

/// Returns the field that a column's name, or one of its words, means in another language.
pub(super) fn translated_field(name: &str) -> Option<&'static str> {
    let of_word = || words(name).iter().find_map(|word| field_in_other_language(word));
    field_in_other_language(&normalised(name)).or_else(of_word)
}
