//! Two fields that the laboratory adds while a fleet of Teltonika devices is running. The source
//! stores the attribute of the first field from the beginning (`keep`), and the attribute of the
//! second field only once the field has been added.

use crate::Settings;

/// Number of satellites in every message of the fleet: the value of the field `satellites`.
pub const SATELLITES: u32 = 9;
/// Tables and views that have a column for each field.
pub const TABLES: [&str; 4] = ["positions", "fixes", "last_positions_state", "last_positions"];
/// Settings of the source before the fields are added.
pub const SOURCE: [(&str, &str); 3] = [
    ("SOURCE__TOPIC", "teltonika/+/data"),
    ("SOURCE__FORMAT", "teltonika"),
    ("SOURCE__KEEP", "sat"),
];
/// Settings that add both fields.
pub const ADDED: [(&str, &str); 4] = [
    ("FIELDS__SATELLITES__FROM", "sat"),
    ("FIELDS__SATELLITES__TYPE", "UInt8"),
    ("FIELDS__TRACKER_EVENT__FROM", "evt"),
    ("FIELDS__TRACKER_EVENT__TYPE", "UInt16"),
];

impl Settings {
    /// Applies [`with`](Self::with) to each key and value.
    #[must_use]
    pub fn with_all(self, values: &[(&str, &str)]) -> Self {
        values.iter().fold(self, |settings, (key, value)| settings.with(key, *value))
    }
}
