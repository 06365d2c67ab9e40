//! How a source's messages are read: what its format and its configuration say once, for all of them.

use super::driver::Driver;
use super::extract::Paths;
use super::keep::Keep;
use super::unit::TimeUnit;

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) driver: Driver,
    pub(super) keep: Keep,
    /// Where the format's values are, and the driver, if the payload says it.
    pub(super) paths: Paths,
    /// Paths of what the format makes fields of: not kept a second time.
    pub(super) used: Vec<String>,
    /// What the format calls `lat` and `lng`.
    pub(super) called: [String; 2],
    pub(super) ts_unit: TimeUnit,
}
