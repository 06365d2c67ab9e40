//! Recognises names of arrays of fixes, such as `buffered` or `history`.

use super::field_names::normalised;

/// Names of arrays of fixes. Arrays such as `route`, `stops` and `geofence` are not among them:
/// their positions are not fixes.
const NAMES: [&str; 24] = [
    "buffer",
    "buffered",
    "history",
    "historical",
    "backlog",
    "offline",
    "queue",
    "queued",
    "cache",
    "cached",
    "stored",
    "archive",
    "archived",
    "previous",
    "past",
    "unsent",
    "pending",
    "points",
    "locations",
    "positions",
    "fixes",
    "records",
    "samples",
    "breadcrumbs",
];
/// Endings of such names, as in `bufferedLocations` and `historyPoints`.
const ENDINGS: [&str; 4] = ["locations", "positions", "points", "fixes"];
/// Maximum length of such a name in bytes.
const NAME_BYTES_MAX: usize = 20;

/// Returns whether an array with this key may hold fixes.
pub(super) fn is_name_of_fixes(key: &[u8]) -> bool {
    if key.len() > NAME_BYTES_MAX {
        return false;
    }
    let name = normalised(&String::from_utf8_lossy(key));
    let stem = ENDINGS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    let stem = if stem.is_empty() { &name } else { stem };
    NAMES.contains(&stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_arrays_of_fixes_are_recognised() {
        for name in ["buffered", "History", "bufferedLocations", "past_points", "points"] {
            assert!(is_name_of_fixes(name.as_bytes()), "{name}");
        }
        for name in ["route", "stops", "waypoints", "geofence", "sensors", "viewpoints", "tags"] {
            assert!(!is_name_of_fixes(name.as_bytes()), "{name}");
        }
    }
}
