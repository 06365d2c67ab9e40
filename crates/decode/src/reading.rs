//! Settings of a source that apply to all of its messages, from its format and configuration.

use std::sync::Arc;

use super::driver::Driver;
use super::extract::{Found, Paths};
use super::keep::Keep;
use super::time::Local;
use super::unit::TimeUnit;

#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) driver: Driver,
    pub(super) keep: Keep,
    /// Paths of the format's values, and of the driver if the payload names it.
    pub(super) paths: Paths,
    /// Paths of the position's own fields: `keep` skips them.
    pub(super) used: Vec<String>,
    /// The format's names of `lat` and `lng`, for errors.
    pub(super) called: [String; 2],
    /// The format's name of `ts`; `None` if the format has no time.
    pub(super) ts_called: Option<String>,
    pub(super) ts_unit: TimeUnit,
    /// How to parse a `ts` string that is not RFC 3339 with an offset; `None`: reject it.
    pub(super) local: Option<Arc<Local>>,
    /// The format is milepost's own, whose keys are often misspelt.
    pub(super) is_own: bool,
    /// The decoder lists the fields that are not read, in
    /// [`Decoded::unread`](super::decoded::Decoded::unread).
    pub(super) lists_unread: bool,
    /// The decoder checks the fields that are not read for hemispheres.
    pub(super) checks_hemispheres: bool,
    /// Reads everything with serde_json, for tests: both readers return the same.
    pub(super) is_serde_json_only: bool,
}

impl Reading {
    /// Returns the values at [`paths`](Self::paths) of a JSON object or array.
    pub(super) fn find<'a>(&self, json: &'a str) -> serde_json::Result<Found<'a>> {
        if self.is_serde_json_only {
            self.paths.find_by_serde_json(json)
        } else {
            self.paths.find(json)
        }
    }
}
