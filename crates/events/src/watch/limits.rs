//! Converts the rules of a fence to the units of fixes: m/s and milliseconds.

use std::collections::BTreeSet;

use crate::fences::hours::Hours;
use crate::fences::rules::FenceRules;

const KMH_PER_MPS: f64 = 3.6;
const MS_PER_S: i64 = 1_000;

/// The rules of a fence, parsed. `None` means that the fence has no such rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Speed in m/s above which a driver inside is fast.
    pub speed_mps: Option<f64>,
    /// Milliseconds inside after which a driver has overstayed.
    pub stay_ms: Option<i64>,
    /// Milliseconds without a fix after which a driver inside is silent; `i64::MAX`: never.
    pub silent_for_ms: Option<i64>,
    /// Opening hours, in which drivers may cross the border.
    pub hours: Option<Hours>,
    /// Ids of the drivers that the fence is for; empty: all.
    pub drivers: BTreeSet<String>,
}

impl Limits {
    /// Parses the rules of a fence.
    ///
    /// # Errors
    /// The opening hours are invalid, or their time zone is unknown.
    pub fn new(rules: FenceRules) -> Result<Self, String> {
        let hours = rules.parsed_hours()?;
        let ms = |seconds: u32| i64::from(seconds) * MS_PER_S;
        Ok(Self {
            speed_mps: rules.speed_limit_kmh.map(|kmh| kmh / KMH_PER_MPS),
            stay_ms: rules.stay_max_s.map(ms),
            silent_for_ms: rules.silent_for_s.map(|s| if s == 0 { i64::MAX } else { ms(s) }),
            hours,
            drivers: rules.drivers.into_iter().collect(),
        })
    }
}
