//! Defines the error with which a point or a message is rejected.

use serde::de::IgnoredAny;

use crate::reject::Reason;

/// The reason and the detail of a reject, before it becomes a row.
pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) detail: String,
    /// The cause is in the object around the array of points, so that whole object is stored as the
    /// reject. If only the point were stored, a replay would accept it.
    pub(super) is_of_enclosing: bool,
}

impl Refusal {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), is_of_enclosing: false }
    }

    /// Marks the cause as one in the object around the array of points.
    pub(super) fn of_enclosing(self) -> Self {
        Self { is_of_enclosing: true, ..self }
    }
}

/// Returns the error for bytes that the reader cannot read. For invalid JSON, the detail is
/// serde_json's, with line and column.
#[cold]
pub(super) fn invalid(json: &[u8]) -> Refusal {
    let is_utf_16 = json.starts_with(&[0xff, 0xfe]) || json.starts_with(&[0xfe, 0xff]);
    // UTF-16 without a byte order mark has a NUL in every second byte. A single NUL is an error of
    // the JSON.
    let is_unmarked = matches!(json, [b'{' | b'[', 0, _, 0, ..] | [0, b'{' | b'[', 0, _, ..]);
    if is_utf_16 || is_unmarked {
        return Refusal::new(Reason::InvalidUtf8, "the payload is UTF-16: send UTF-8");
    }
    if let Err(error) = std::str::from_utf8(json) {
        return Refusal::new(Reason::InvalidUtf8, error.to_string());
    }
    let detail = match serde_json::from_slice::<IgnoredAny>(json) {
        Err(error) => error.to_string(),
        Ok(IgnoredAny) => "it is not JSON".to_owned(),
    };
    // serde_json reports trailing characters after the first of two objects, for example.
    let has_trailing = detail.starts_with("trailing characters");
    let hint = if has_trailing { "; a message is one object, or one array of objects" } else { "" };
    Refusal::new(Reason::InvalidJson, detail + hint)
}

/// Returns the error, for use as the result of a check.
pub(super) fn refuse<T>(reason: Reason, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(reason, detail))
}
