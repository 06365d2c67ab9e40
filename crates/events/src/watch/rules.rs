//! The fences and limits of a fleet.

use super::area::Area;

/// The fences and limits by which fixes become events.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub areas: Vec<Area>,
    /// Milliseconds without a fix after which a driver is silent; `None`: only the rules of fences
    /// count.
    pub silent_for: Option<i64>,
    /// A driver is not silent before this many times its usual gap; 0.0: only `silent_for` counts.
    pub silent_gaps: f64,
    /// Speed in m/s above which a driver is fast; `None`: only the limits of fences count.
    pub faster_than: Option<f64>,
    /// Distance from the border, in metres, up to which a driver outside has not left a fence.
    /// Without this margin, a device at rest on the border would leave and enter with each error of
    /// its position.
    pub fence_margin: f64,
}

impl Rules {
    /// Returns the longest silence, in milliseconds, that a rule of the fleet or of a fence allows;
    /// "never" does not count. A driver's own rhythm may allow a longer one.
    #[must_use]
    pub fn longest_silence_limit(&self) -> i64 {
        let fence_limits = self.areas.iter().filter_map(|area| area.limits.silent_for_ms);
        fence_limits.chain(self.silent_for).filter(|ms| *ms < i64::MAX).max().unwrap_or_default()
    }

    /// Returns the areas of a fence that apply to this driver.
    pub(super) fn areas_of(&self, fence: &str, driver_id: &str) -> impl Iterator<Item = &Area> {
        let areas = self.areas.iter().filter(move |area| area.name == fence);
        areas.filter(move |area| area.is_for(driver_id))
    }
}
