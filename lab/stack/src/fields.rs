//! Two fields that the laboratory adds while a fleet of Teltonika devices is running. The source
//! keeps the attribute of the first field from the beginning. The attribute of the second field is
//! not kept until the field is added.

use crate::Settings;

/// Satellites in every message of the fleet, which the field `satellites` shows.
pub const SATELLITES: u32 = 9;
/// Tables and views that have a column for each field.
pub const TABLES: [&str; 4] = ["positions", "fixes", "last_positions_state", "last_positions"];
/// The source, before the fields are added.
pub const SOURCE: [(&str, &str); 3] = [
    ("SOURCE__TOPIC", "teltonika/+/data"),
    ("SOURCE__FORMAT", "teltonika"),
    ("SOURCE__KEEP", "sat"),
];
/// The fields.
pub const ADDED: [(&str, &str); 4] = [
    ("FIELDS__SATELLITES__FROM", "sat"),
    ("FIELDS__SATELLITES__TYPE", "UInt8"),
    ("FIELDS__TRACKER_EVENT__FROM", "evt"),
    ("FIELDS__TRACKER_EVENT__TYPE", "UInt16"),
];

impl Settings {
    /// Sets each of these variables.
    #[must_use]
    pub fn with_all(self, values: &[(&str, &str)]) -> Self {
        values.iter().fold(self, |settings, (key, value)| settings.with(key, *value))
    }
}
