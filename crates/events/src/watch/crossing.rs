//! Finds the fences whose border is between a fix and the driver's last known state. Decides
//! whether a single fix is enough to report a crossing.
//!
//! A driver enters or leaves a fence when two consecutive fixes are beyond the fence's border,
//! because a single fix may be an error of the device. A single fix is enough if no other fix
//! follows within [`ALONE_MS`]. It is not enough if the device was at rest: the last fix before a
//! device sleeps may be wrong, too. Nor is it enough if no vehicle could get to the fix from the
//! previous one.

use std::collections::BTreeSet;

use milepost_decode::metres;

use super::area::Area;
use super::event::Fix;
use super::fenced::Stays;
use super::rules::Rules;

/// Milliseconds after which a crossing counts without a second fix, because the device reports
/// rarely or sleeps. Longer than the usual interval of a moving device, which is at most a minute.
pub(super) const ALONE_MS: i64 = 120_000;
/// Maximum distance in metres between two fixes with speed 0 for which the device counts as at
/// rest. Without this limit, a device that always reports speed 0 would count as at rest while it
/// is carried away.
const REST_M: f64 = 1_000.0;

/// The fences around a fix, and those whose border the driver may have crossed at it.
pub(super) struct Surroundings<'a> {
    /// The areas that contain the fix, and the areas that the driver has not left yet because the
    /// fix is within their margin.
    pub(super) around: Vec<&'a Area>,
    /// Names of the fences whose border is between the fix and the driver's state: the driver is
    /// inside and the fix outside, or the reverse.
    pub(super) crossed: BTreeSet<String>,
}

impl<'a> Surroundings<'a> {
    /// Finds the fences around a fix, and those whose border is between the fix and the driver's
    /// state. `stays`: the driver's state at each fence. An area is one outline of a fence, valid
    /// for some time; it has the fence's name.
    pub(super) fn locate(fix: &Fix, stays: &Stays, rules: &'a Rules) -> Self {
        let place = [fix.lng, fix.lat];
        let is_for = |area: &&Area| area.is_for(&fix.driver_id);
        let areas = rules.areas.iter();
        let mut around: Vec<&Area> =
            areas.filter(|area| area.contains(fix.ts, place)).filter(is_for).collect();
        let is_outside = |area: &&&Area| !stays.is_inside(&area.name);
        let mut crossed: BTreeSet<String> =
            around.iter().filter(is_outside).map(|area| area.name.clone()).collect();
        for fence in stays.inside() {
            if around.iter().any(|area| area.name == fence) {
                continue;
            }
            let areas = rules.areas_of(fence, &fix.driver_id);
            let near_areas = areas.filter(|area| area.is_near(fix.ts, place, rules.fence_margin));
            let count_before = around.len();
            around.extend(near_areas);
            if around.len() == count_before {
                crossed.insert(fence.to_owned());
            }
        }
        Self { around, crossed }
    }
}

/// Returns whether the device is at rest at this fix: this fix and the previous one have speed 0,
/// and are at most [`REST_M`] apart. `previous` is `None` if no earlier good fix of the driver is
/// known; then this fix alone decides.
pub(super) fn is_at_rest(previous: Option<&Fix>, fix: &Fix) -> bool {
    let stands = |fix: &Fix| fix.speed.is_some_and(|speed| speed <= 0.0);
    let is_here =
        |previous: &Fix| metres([previous.lat, previous.lng], [fix.lat, fix.lng]) <= REST_M;
    stands(fix) && previous.is_none_or(|previous| stands(previous) && is_here(previous))
}
