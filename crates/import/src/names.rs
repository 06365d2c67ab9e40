//! Lists the usual names of the columns of a CSV file.

use milepost_decode::Quantity;

/// A field, its quantity, and its names in lower case without spaces, `_`, `-`, `.`, `/` and
/// brackets, the preferred one first.
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
    ("lat_hemisphere", None, &["ns", "lathemisphere", "latitudehemisphere", "latns", "latdir"]),
    (
        "lng_hemisphere",
        None,
        &["ew", "lnghemisphere", "longitudehemisphere", "lonhemisphere", "lonew", "londir"],
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

/// A column by its index, and the unit in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) at: usize,
    pub(super) unit: Option<&'static str>,
}

/// Normalises a name: lower case, without spaces, `_`, `-`, `.`, `/` and brackets.
pub(super) fn normalised(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, ' ' | '_' | '-' | '.' | '/' | '(' | ')' | '[' | ']'))
        .collect::<String>()
        .to_lowercase()
}

/// Returns whether a column has a usual name of the latitude.
pub(super) fn is_latitude(name: &str) -> bool {
    is_name_of("lat", name)
}

/// Returns whether a column has one of the usual names of a field.
pub(super) fn is_name_of(field: &str, name: &str) -> bool {
    FIELD_NAMES
        .iter()
        .any(|(known, _, names)| *known == field && names.contains(&&*normalised(name)))
}
