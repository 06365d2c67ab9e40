//! Decides whether a driver crossed the border of a fence: two fixes in a row must be beyond it,
//! because one alone may be an error of the device.
//!
//! One fix is enough if no other follows within [`ALONE_MS`], unless the device was at rest: its
//! last fix before it sleeps may be wrong, too.

use std::collections::{BTreeMap, BTreeSet};

use milepost_decode::metres;

use super::area::Area;
use super::event::{Event, Fix, Kind, event};
use super::fenced::{Stay, judge_hours};
use super::{Driver, Rules};

/// Milliseconds after which a crossing is believed without a second fix: the device reports rarely,
/// or sleeps. Longer than the usual interval of a moving device, which is at most a minute.
const ALONE_MS: i64 = 120_000;
/// Maximum distance in metres between two fixes with speed 0 that are at one place. A device whose
/// speed is always 0 must not seem to rest while it is carried away.
const REST_M: f64 = 1_000.0;

/// A fix among the fences.
pub(super) struct Surroundings<'a> {
    /// The areas that the fix is in, or that the driver has not left because of the margin.
    pub(super) around: Vec<&'a Area>,
    /// Names of the fences whose border is between the fix and the driver's state: the driver is
    /// inside and the fix outside, or the reverse.
    pub(super) crossed: BTreeSet<String>,
}

impl<'a> Surroundings<'a> {
    pub(super) fn of(fix: &Fix, fences: &BTreeMap<String, Stay>, rules: &'a Rules) -> Self {
        let place = [fix.lng, fix.lat];
        let is_for = |area: &&Area| area.is_for(&fix.driver_id);
        let areas = rules.areas.iter();
        let mut around: Vec<&Area> =
            areas.filter(|area| area.contains(fix.ts, place)).filter(is_for).collect();
        let is_outside = |area: &&&Area| fences.get(&area.name).is_none_or(|stay| !stay.is_inside);
        let mut crossed: BTreeSet<String> =
            around.iter().filter(is_outside).map(|area| area.name.clone()).collect();
        for (fence, _) in fences.iter().filter(|(_, stay)| stay.is_inside) {
            if around.iter().any(|area| area.name == *fence) {
                continue;
            }
            let near = rules.areas_of(fence, &fix.driver_id);
            let near = near.filter(|area| area.is_near(fix.ts, place, rules.fence_margin));
            let count_before = around.len();
            around.extend(near);
            if around.len() == count_before {
                crossed.insert(fence.clone());
            }
        }
        Self { around, crossed }
    }
}

impl Driver {
    /// Believes the crossings of the newest good fix if no fix followed it for [`ALONE_MS`] until
    /// `now`, by the server's clock. Returns whether a crossing will be decided later, even without
    /// a further fix: until then, neither a stay nor a silence can be judged.
    pub(super) fn cross_alone(&mut self, now: i64, rules: &Rules, out: &mut Vec<Event>) -> bool {
        let Some(good) = self.last_good.as_ref().filter(|_| self.may_have_crossed) else {
            return false;
        };
        let crossed = Surroundings::of(good, &self.fences, rules).crossed;
        self.may_have_crossed = !crossed.is_empty();
        if crossed.is_empty() || self.is_at_rest || self.suspect.is_some() {
            return false;
        }
        let known_at = good.inserted_at.saturating_add(ALONE_MS);
        if known_at > now {
            return true;
        }
        self.may_have_crossed = false;
        self.cross(crossed, known_at, rules, out);
        false
    }

    /// Believes the crossings of the newest good fix that the next one confirms. Returns the names
    /// of the fences for which it does not: that fix was wrong.
    pub(super) fn confirm_crossings(
        &mut self,
        next: &Fix,
        rules: &Rules,
        out: &mut Vec<Event>,
    ) -> BTreeSet<String> {
        let Some(good) = self.last_good.as_ref().filter(|_| self.may_have_crossed) else {
            return BTreeSet::new();
        };
        self.may_have_crossed = false;
        let crossed = Surroundings::of(good, &self.fences, rules).crossed;
        let crossed_by_next = Surroundings::of(next, &self.fences, rules).crossed;
        // By the device's clock, too: a device that was offline sends its fixes at one time.
        let is_alone = next.ts - good.ts > ALONE_MS && !self.is_at_rest;
        let (believed, wrong) =
            crossed.into_iter().partition(|fence| is_alone || crossed_by_next.contains(fence));
        self.cross(believed, next.inserted_at, rules, out);
        wrong
    }

    /// Enters or leaves these fences at the newest good fix. The events of leaving come first.
    fn cross(
        &mut self,
        crossed: BTreeSet<String>,
        known_at: i64,
        rules: &Rules,
        out: &mut Vec<Event>,
    ) {
        let Some(good) = &self.last_good else { return };
        let fix = Fix { inserted_at: known_at, ..good.clone() };
        let is_inside = |fence: &String| self.fences.get(fence).is_some_and(|stay| stay.is_inside);
        let (left, entered): (Vec<_>, Vec<_>) = crossed.into_iter().partition(is_inside);
        for (kind, fence) in left
            .into_iter()
            .map(|fence| (Kind::Left, fence))
            .chain(entered.into_iter().map(|fence| (Kind::Entered, fence)))
        {
            let crossing = event(&fix, kind, &fence);
            self.fences.insert(fence.clone(), Stay::after(&crossing));
            out.push(crossing);
            let place = [fix.lng, fix.lat];
            let has_border_here = |area: &&Area| kind == Kind::Left || area.contains(fix.ts, place);
            let areas = rules.areas_of(&fence, &fix.driver_id).filter(has_border_here);
            judge_hours(&fix, &fence, areas, out);
            if kind == Kind::Left {
                self.speeding.leave(&fix, &fence, out);
            }
        }
    }
}

/// Returns whether the device reports speed 0 at this fix and at the one before, and the two are at
/// one place. Of the fix before, nothing may be known.
pub(super) fn is_at_rest(before: Option<&Fix>, fix: &Fix) -> bool {
    let stands = |fix: &Fix| fix.speed.is_some_and(|speed| speed <= 0.0);
    let is_here = |before: &Fix| metres([before.lat, before.lng], [fix.lat, fix.lng]) <= REST_M;
    stands(fix) && before.is_none_or(|before| stands(before) && is_here(before))
}
