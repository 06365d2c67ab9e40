//! Derives the events of one driver from its fixes, and decides which fixes are wrong.

use std::collections::BTreeSet;

use super::area::Area;
use super::crossing::{ALONE_MS, Surroundings, is_at_rest};
use super::event::{Event, Fix, GAP_MS_MAX, Kind, event};
use super::fenced::{Speeding, Stay, Stays, TimeLimited, judge_hours};
use super::rhythm::Rhythm;
use super::rules::Rules;
use super::sequence::Sequence;
use milepost_decode::metres;

/// Maximum `acc` in metres: the place of a less accurate fix is ignored, as in `driver_days_mv`.
pub(crate) const ACCURACY_M_MAX: f64 = 200.0;
/// A movement is impossible if it is longer than 100 m plus 100 m for each second. This limit is
/// the same for every vehicle. `driver_days_mv` has one for each vehicle, in `trip_rules`.
const JUMP_M: f64 = 100.0;
const JUMP_M_PER_MS: f64 = 0.1;

/// State of one driver.
#[derive(Debug, Clone, Default)]
pub(super) struct Driver {
    /// The newest fix, even if it is inaccurate or a jump. A fix that is not newer causes no event.
    pub(super) last_fix: Option<Fix>,
    /// The newest fix that is accurate and no jump: the driver's place.
    last_good: Option<Fix>,
    /// A fix reached at an impossible speed. The next fix decides whether it is a jump.
    suspect: Option<Fix>,
    /// The newest good fix may be on the other side of a fence's border, and no event reports the
    /// crossing yet. The next fix decides. If none comes within [`ALONE_MS`], the crossing is
    /// accepted.
    pub(super) may_have_crossed: bool,
    /// At the newest good fix, the device was at rest.
    is_at_rest: bool,
    /// The newest good fix was reached at an impossible speed, and the next fix did not show it to
    /// be a jump. The newest good fix may still be wrong.
    is_doubtful: bool,
    /// At a start: the good fix just before the newest good one. No fence was considered at either
    /// of the two, so this one may confirm a crossing. Boxed, because few drivers need it, and only
    /// until the first tick.
    confirming: Option<Box<Fix>>,
    pub(super) fences: Stays,
    pub(super) speeding: Speeding,
    pub(super) is_silent: bool,
    rhythm: Rhythm,
    pub(super) sequence: Sequence,
}

impl Driver {
    /// Processes a fix and appends its events to `out`. Ignores a fix that is not newer than the
    /// last one. An inaccurate fix only ends a silence. A fix reached at an impossible speed
    /// becomes the suspect, which the next fix confirms or shows to be a jump.
    pub(super) fn handle_fix(&mut self, fix: Fix, rules: &Rules, out: &mut Vec<Event>) {
        if self.last_fix.as_ref().is_some_and(|last| sort_key(&fix) <= sort_key(last)) {
            return;
        }
        if let Some(last) = &self.last_fix {
            self.rhythm.add(fix.inserted_at - last.inserted_at, fix.ts - last.ts);
        }
        self.last_fix = Some(fix.clone());
        if std::mem::take(&mut self.is_silent) {
            out.push(event(&fix, Kind::Heard, ""));
        }
        // First decide what `Watch::tick` would have decided just before this insert. Otherwise the
        // events would depend on the times of the polls.
        let is_waiting_for_time = self.accept_lone_crossings(fix.inserted_at, rules, out);
        if self.may_have_crossed && !is_waiting_for_time {
            for (fence, stay) in self.fences.inside_mut() {
                let areas: Vec<&Area> = rules.areas_of(fence, &fix.driver_id).collect();
                stay.judge_stay_at_time(fix.inserted_at, (&fix.driver_id, fence), &areas, out);
            }
        }
        if fix.acc.is_some_and(|acc| acc > ACCURACY_M_MAX) {
            return;
        }
        if let Some(suspect) = self.suspect.take() {
            let is_plausible =
                self.last_good.as_ref().is_none_or(|good| !is_impossible(good, &fix));
            if is_plausible && is_impossible(&suspect, &fix) {
                out.push(Event { known_at: fix.inserted_at, ..event(&suspect, Kind::Jump, "") });
            } else {
                self.move_to(Fix { inserted_at: fix.inserted_at, ..suspect }, rules, out);
            }
        }
        if self.last_good.as_ref().is_some_and(|good| is_impossible(good, &fix)) {
            self.suspect = Some(fix);
        } else {
            self.move_to(fix, rules, out);
        }
    }

    /// Restores the driver from a fix that is older than the replayed time. Considers no fence.
    pub(super) fn restore_fix(&mut self, fix: Fix) {
        self.sequence.begin(fix.seq, fix.ts);
        let key = sort_key(&fix);
        let is_newest = |other: Option<&Fix>| other.is_some_and(|other| sort_key(other) >= key);
        if is_newest(self.last_fix.as_ref()) {
            return;
        }
        let last_key = self.last_fix.as_ref().map(sort_key);
        let before = self.last_good.clone().filter(|good| last_key == Some(sort_key(good)));
        let confirming = self.confirming.take();
        self.handle_fix(fix, &Rules::default(), &mut Vec::new());
        let is_good = is_newest(self.last_good.as_ref());
        self.confirming = if is_good { before.map(Box::new) } else { confirming };
        self.may_have_crossed = true; // no fence was considered
    }

    /// Returns the time without a fix, in milliseconds, after which the driver is silent; `None`:
    /// never. If the driver is inside valid fences that set `silent_for`, the longest of these
    /// applies. Otherwise it is `rules.silent_for`, or `rules.silent_gaps` times the driver's usual
    /// gap if that is longer. `since`: time from which the silence is measured.
    pub(super) fn silent_for(
        &self,
        last: &Fix,
        (since, now): (i64, i64),
        rules: &Rules,
        limited: &TimeLimited,
    ) -> Option<i64> {
        let silence_limit = |fence: &str| {
            let areas = limited.areas(fence);
            let is_for_driver = |area: &&&Area| area.is_for(&last.driver_id);
            // An area of the fence must still be valid when the silence becomes known.
            let is_valid_when_known = |ms: &i64| {
                let known_at = since.saturating_add(*ms).min(now);
                areas.iter().filter(is_for_driver).any(|area| area.is_valid(known_at))
            };
            let valid = areas.iter().filter(is_for_driver).filter(|area| area.is_valid(last.ts));
            valid.filter_map(|area| area.limits.silent_for_ms).filter(is_valid_when_known).max()
        };
        let fence_limit = self.fences.inside().filter_map(silence_limit).max();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "a fraction of a millisecond does not matter"
        )]
        let rhythm_limit = (self.rhythm.usual() as f64 * rules.silent_gaps) as i64;
        let fleet_limit = rules.silent_for.map(|silent_for| silent_for.max(rhythm_limit));
        fence_limit.or(fleet_limit).filter(|ms| *ms < i64::MAX)
    }

    /// Makes this fix the newest good one. First decides the crossings at the previous good fix,
    /// then judges the stays and the speed.
    fn move_to(&mut self, fix: Fix, rules: &Rules, out: &mut Vec<Event>) {
        let wrongly_crossed = self.confirm_crossings(&fix, rules, out);
        let mut was_inside = BTreeSet::new();
        for (fence, stay) in self.fences.inside_mut() {
            if !wrongly_crossed.contains(fence) {
                was_inside.insert(fence.to_owned());
            }
            stay.judge_stay_at_fix(&fix, fence, rules.areas_of(fence, &fix.driver_id), out);
        }
        let Surroundings { around, crossed } = Surroundings::locate(&fix, &self.fences, rules);
        let last = self.last_good.as_ref().map(|good| (good, &was_inside));
        self.speeding.judge(last, &fix, (&around, &crossed), rules.faster_than, out);
        self.may_have_crossed = !crossed.is_empty();
        self.is_at_rest = is_at_rest(self.last_good.as_ref(), &fix);
        self.is_doubtful = self.last_good.as_ref().is_some_and(|good| is_impossible(good, &fix));
        self.last_good = Some(fix);
    }

    /// Accepts the crossings of the newest good fix. Crossings that a restored fix confirms are
    /// accepted at once; the others once [`ALONE_MS`] have passed since the insert of the good fix
    /// without another fix. `now` is by the server's clock. Returns `true` while a crossing waits
    /// only for [`ALONE_MS`] to pass. Meanwhile, neither a stay nor a silence can be judged.
    pub(super) fn accept_lone_crossings(
        &mut self,
        now: i64,
        rules: &Rules,
        out: &mut Vec<Event>,
    ) -> bool {
        let Some(good) = self.last_good.as_ref().filter(|_| self.may_have_crossed) else {
            return false;
        };
        let inserted_at = good.inserted_at;
        let mut crossed = Surroundings::locate(good, &self.fences, rules).crossed;
        if let Some(confirming) = self.confirming.take() {
            let before = Surroundings::locate(&confirming, &self.fences, rules).crossed;
            let (confirmed, others) = crossed.into_iter().partition(|fence| before.contains(fence));
            crossed = others;
            self.cross(confirmed, inserted_at, rules, out);
        }
        self.may_have_crossed = !crossed.is_empty();
        if crossed.is_empty() || self.is_at_rest || self.suspect.is_some() {
            return false;
        }
        let known_at = inserted_at.saturating_add(ALONE_MS);
        if known_at > now {
            return true;
        }
        self.may_have_crossed = false;
        self.cross(crossed, known_at, rules, out);
        false
    }

    /// Accepts the crossings of the newest good fix that `next` confirms. Accepts all its crossings
    /// if these conditions hold: no fix followed the good fix for [`ALONE_MS`], the device was not
    /// at rest, and the good fix was not reached at an impossible speed. Returns the fences whose
    /// crossings are not accepted: for these fences, the good fix was wrong.
    fn confirm_crossings(
        &mut self,
        next: &Fix,
        rules: &Rules,
        out: &mut Vec<Event>,
    ) -> BTreeSet<String> {
        let Some(good) = self.last_good.as_ref().filter(|_| self.may_have_crossed) else {
            return BTreeSet::new();
        };
        self.may_have_crossed = false;
        let crossed = Surroundings::locate(good, &self.fences, rules).crossed;
        let crossed_by_next = Surroundings::locate(next, &self.fences, rules).crossed;
        // `accept_lone_crossings` measures by the server's clock how long the good fix was alone.
        // Measure this also by the device's clock. A device that was offline sends all its fixes at
        // once, so the times of their inserts do not show how long the good fix was alone.
        let is_alone = next.ts - good.ts > ALONE_MS && !self.is_at_rest && !self.is_doubtful;
        let (accepted, wrong) =
            crossed.into_iter().partition(|fence| is_alone || crossed_by_next.contains(fence));
        self.cross(accepted, next.inserted_at, rules, out);
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
        let (left, entered): (Vec<_>, Vec<_>) =
            crossed.into_iter().partition(|fence| self.fences.is_inside(fence));
        for (kind, fence) in left
            .into_iter()
            .map(|fence| (Kind::Left, fence))
            .chain(entered.into_iter().map(|fence| (Kind::Entered, fence)))
        {
            let crossing = event(&fix, kind, &fence);
            self.fences.insert(&fence, Stay::after(&crossing));
            out.push(crossing);
            let place = [fix.lng, fix.lat];
            // The driver leaves all areas of the fence, but enters only those around the fix.
            let is_crossed = |area: &&Area| kind == Kind::Left || area.contains(fix.ts, place);
            let areas = rules.areas_of(&fence, &fix.driver_id).filter(is_crossed);
            judge_hours(&fix, &fence, areas, out);
            if kind == Kind::Left {
                self.speeding.leave(&fix, &fence, out);
            }
        }
    }
}

/// Returns the sort key of fixes: the device's clock, then its counter, as in `last_positions`.
fn sort_key(fix: &Fix) -> (i64, u32) {
    (fix.ts, fix.seq)
}

/// Returns whether no vehicle can cover the distance between two fixes in the time between them.
fn is_impossible(from: &Fix, to: &Fix) -> bool {
    let ms = to.ts - from.ts;
    #[expect(
        clippy::cast_precision_loss,
        reason = "`reach` is called only if `ms` is at most an hour"
    )]
    let reach = || JUMP_M + JUMP_M_PER_MS * ms as f64;
    ms <= GAP_MS_MAX && metres([from.lat, from.lng], [to.lat, to.lng]) > reach()
}
