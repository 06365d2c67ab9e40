//! Defines how the payloads of a source are read.

use std::sync::Arc;

use super::driver::Driver;
use super::extract::Paths;
use super::field_names::{TIME_NAMES, normalised};
use super::keep::Keep;
use super::time::Local;
use super::unit::TimeUnit;

/// Rules for reading the payloads of a source, from its format and its configuration.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    pub(super) driver: Driver,
    pub(super) keep: Keep,
    /// Paths of the format's values, and of the driver if the payload names it.
    pub(super) paths: Paths,
    /// Paths of the position's own fields: `keep` skips them.
    pub(super) used: Vec<String>,
    /// Paths of the objects that hold the speed, heading, altitude and accuracy. An empty path
    /// means that the point itself holds the value.
    pub(super) parents: [String; 4],
    /// The format's names of `lat` and `lng`, for errors.
    pub(super) lat_lng_names: [String; 2],
    /// The format's name of `ts`, for errors; `None` if the format has no such field.
    pub(super) ts_name: Option<String>,
    pub(super) ts_unit: TimeUnit,
    /// Zone and pattern of `ts` strings; `None`: a string must state its offset.
    pub(super) local: Option<Arc<Local>>,
    /// The format is milepost's own, whose keys are often misspelt.
    pub(super) is_own: bool,
    /// The decoder lists the unread fields in
    /// [`Decoded::unread`](super::decoded::Decoded::unread).
    pub(super) lists_unread: bool,
    /// The decoder checks the unread fields for hemispheres.
    pub(super) checks_hemispheres: bool,
}

impl Schema {
    /// Returns whether a member of this name may be the time that the format reads. A format
    /// without pointers also reads the usual names.
    pub(super) fn may_be_time(&self, name: &str) -> bool {
        self.ts_name.as_ref().is_some_and(|ts| {
            ts.rsplit('/').next() == Some(name)
                || !ts.starts_with('/') && TIME_NAMES.contains(&&*normalised(name))
        })
    }
}
