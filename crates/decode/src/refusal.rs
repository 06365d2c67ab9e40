//! Defines the error with which a point or a message is rejected.

use crate::reject::Reason;

/// The reason and the detail of a reject, before it becomes a row.
pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) detail: String,
}

impl Refusal {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        let reason = if error.is_data() { Reason::WrongShape } else { Reason::InvalidJson };
        let detail = error.to_string();
        // For example, two objects one after the other.
        let has_trailing = detail.starts_with("trailing characters");
        let hint =
            if has_trailing { "; a message is one object, or one array of objects" } else { "" };
        Self::new(reason, detail + hint)
    }
}

/// Returns the error, for use as the result of a check.
pub(super) fn refuse<T>(reason: Reason, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(reason, detail))
}
