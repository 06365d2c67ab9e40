//! Why a point or a message is rejected.

use crate::pipeline::reject::Reason;

pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) detail: String,
}

impl Refusal {
    pub(super) fn new(reason: Reason, detail: String) -> Self {
        Self { reason, detail }
    }

    pub(super) fn from_json(error: &serde_json::Error) -> Self {
        let reason = if error.is_data() { Reason::WrongShape } else { Reason::InvalidJson };
        Self::new(reason, error.to_string())
    }
}

pub(super) fn refuse<T>(reason: Reason, detail: impl FnOnce() -> String) -> Result<T, Refusal> {
    Err(Refusal::new(reason, detail()))
}
