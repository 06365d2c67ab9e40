//! Derives events from fixes in the order of their inserts: a driver enters, leaves or overstays a
//! fence, crosses it outside its opening hours, is silent and heard again, is fast and slow again,
//! or jumps.
//!
//! Guarantee: an event is a function of the fixes before it. A fix that is repeated, or older than
//! a processed one of its driver, causes no event. So the same fixes in the same order give the
//! same events with the same ids, however often the process restarts.
//!
//! At its start, a process replays the fixes of the last quarter of an hour (the *replayed time*).

mod area;
mod crossing;
mod event;
mod fenced;
mod limits;
pub mod reader;
mod rhythm;
mod sequence;
pub(crate) mod store;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub use self::area::Area;
use self::crossing::{Surroundings, is_at_rest};
pub use self::event::{Event, Fix, Kind};
use self::event::{GAP_MS_MAX, State, event};
use self::fenced::{Limited, Speeding, Stay};
pub use self::limits::Limits;
use self::rhythm::Rhythm;
use self::sequence::Sequence;
use milepost_decode::metres;

/// Maximum `acc` in metres: the place of a less accurate fix is ignored, as in `driver_days_mv`.
pub(crate) const ACCURACY_M_MAX: f64 = 200.0;
/// A movement is impossible if it is longer than 100 m plus 100 m for each second. The limit is the
/// same for every vehicle; `driver_days_mv` has one for each, in `trip_rules`.
const JUMP_M: f64 = 100.0;
const JUMP_M_PER_MS: f64 = 0.1;
/// Maximum number of drivers in memory, of some 450 bytes each.
const DRIVERS_MAX: usize = 1_000_000;

/// The fences and limits that decide which events there are.
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
    /// Without it, errors of its position would make a device at rest on the border leave and
    /// enter.
    pub fence_margin: f64,
}

impl Rules {
    /// Returns the longest silence, in milliseconds, that a rule of the fleet or of a fence allows;
    /// "never" does not count. A driver's own rhythm may allow a longer one.
    #[must_use]
    pub fn longest_patience(&self) -> i64 {
        let fence_limits = self.areas.iter().filter_map(|area| area.limits.silent_for);
        fence_limits.chain(self.silent_for).filter(|ms| *ms < i64::MAX).max().unwrap_or_default()
    }

    /// Returns the areas of a fence that apply to this driver.
    fn areas_of(&self, fence: &str, driver_id: &str) -> impl Iterator<Item = &Area> {
        let areas = self.areas.iter().filter(move |area| area.name == fence);
        areas.filter(move |area| area.is_for(driver_id))
    }
}

/// State of one driver.
#[derive(Debug, Clone, Default)]
struct Driver {
    /// The newest fix, even if it is inaccurate or a jump. A fix that is not newer causes no event.
    last_fix: Option<Fix>,
    /// The newest fix that is accurate and no jump: the driver's place.
    last_good: Option<Fix>,
    /// A fix reached at an impossible speed. The next fix decides whether it is a jump.
    suspect: Option<Fix>,
    /// The newest good fix may be beyond the border of a fence without an event yet: the next fix,
    /// or the time without one, decides.
    may_have_crossed: bool,
    /// At the newest good fix, the device was at rest.
    is_at_rest: bool,
    /// Fences with an event of the driver.
    fences: BTreeMap<String, Stay>,
    speeding: Speeding,
    is_silent: bool,
    rhythm: Rhythm,
    sequence: Sequence,
}

/// State of all drivers; see the module.
#[derive(Debug, Default)]
pub struct Watch {
    pub rules: Rules,
    drivers: HashMap<String, Driver>,
    /// Events of the replayed time that are in the table already, oldest first.
    known: VecDeque<Event>,
    /// `known_at` of the newest known event of each state.
    decided: HashMap<(String, State), i64>,
    /// Number of fixes of drivers beyond [`DRIVERS_MAX`], which cause no events.
    pub untracked_fixes: u64,
    /// Time at which the server's clock was set; 0: never. A silence is measured from there at the
    /// earliest.
    clock_set_at: i64,
    /// Count of numbers missing from the drivers' `seq` since the process began. Late fixes reduce
    /// it.
    missing: i64,
}

impl Watch {
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Restores a driver from a fix that is older than the replayed time. Call it for the oldest
    /// fix first; the last three of a driver decide whether one of them is a jump.
    pub fn restore_fix(&mut self, fix: Fix) {
        if let Some(driver) = driver(&mut self.drivers, &fix.driver_id) {
            driver.sequence.begin(fix.seq, fix.ts);
            driver.handle_fix(fix, &Rules::default(), &mut Vec::new());
            driver.may_have_crossed = true; // no fence was considered
        }
    }

    /// Sets the known events of the replayed time, oldest first. They decide the states of that
    /// time instead of its fixes, because fences and limits may have changed since.
    pub fn replay_known(&mut self, known: Vec<Event>) {
        self.decided =
            known.iter().filter_map(|event| Some((event.state()?, event.known_at))).collect();
        self.known = known.into();
    }

    /// Restores the states before these events, which are given oldest first: each event implies
    /// its predecessor. Must be called after [`restore_fix`](Self::restore_fix).
    pub fn restore_states_before<'a>(&mut self, known: impl DoubleEndedIterator<Item = &'a Event>) {
        for event in known.rev() {
            self.restore_event(&Event { kind: event.kind.predecessor(), ..event.clone() });
        }
    }

    /// Restores a state from a known event. Must be called after
    /// [`restore_fix`](Self::restore_fix), oldest event first.
    pub fn restore_event(&mut self, event: &Event) {
        let Some(driver) = driver(&mut self.drivers, &event.driver_id) else { return };
        match event.kind {
            Kind::Entered | Kind::Overstayed | Kind::Left => {
                driver.fences.insert(event.fence.clone(), Stay::after(event));
            }
            Kind::Silent | Kind::Heard => driver.is_silent = event.kind == Kind::Silent,
            Kind::Fast | Kind::Slow => driver.speeding.restore_event(event),
            Kind::Jump | Kind::OffHours => {}
        }
    }

    /// Processes a fix and appends its events to `out`.
    pub fn handle_fix(&mut self, fix: Fix, out: &mut Vec<Event>) {
        while self.known.front().is_some_and(|event| event.known_at < fix.inserted_at) {
            let event = self.known.pop_front().expect("the queue has a front");
            self.restore_event(&event);
        }
        let first = out.len();
        let Self { rules, drivers, untracked_fixes, missing, .. } = self;
        let Some(driver) = driver(drivers, &fix.driver_id) else {
            *untracked_fixes += 1;
            return;
        };
        *missing += driver.sequence.record(fix.seq, fix.ts);
        driver.handle_fix(fix, rules, out);
        self.remove_decided(first, out);
    }

    /// Removes the events from `first` on that are older than the newest known event of their
    /// state.
    fn remove_decided(&self, first: usize, out: &mut Vec<Event>) {
        let decided = &self.decided;
        if decided.is_empty() {
            return;
        }
        let is_later = |event: &Event| {
            if event.kind == Kind::OffHours {
                // An earlier process decided it together with the crossing at the same fix.
                let crossing = Event { kind: Kind::Entered, ..event.clone() };
                let at = crossing.state().and_then(|state| decided.get(&state));
                return at.is_none_or(|at| *at < event.known_at);
            }
            let at = event.state().and_then(|state| decided.get(&state));
            at.is_none_or(|at| *at <= event.known_at)
        };
        let found = out.split_off(first);
        out.extend(found.into_iter().filter(is_later));
    }

    /// Appends an event for each driver that has fallen silent, stayed in a fence for too long, or
    /// crossed a border with a fix that no other followed.
    /// `now`: the server's time up to which all inserted fixes are processed.
    pub fn tick(&mut self, now: i64, out: &mut Vec<Event>) {
        let first = out.len();
        let Self { rules, drivers, clock_set_at, .. } = self;
        if rules.silent_for.is_none() && rules.areas.is_empty() {
            return;
        }
        let limited = Limited::new(&rules.areas);
        for (id, driver) in drivers {
            if driver.cross_alone(now, rules, out) {
                continue;
            }
            for (fence, stay) in driver.fences.iter_mut().filter(|(_, stay)| stay.is_inside) {
                stay.overstay_at(now, (id, fence), limited.areas(fence), out);
            }
            if driver.is_silent {
                continue;
            }
            let Some(last) = &driver.last_fix else { continue };
            let since = last.inserted_at.max(*clock_set_at);
            let Some(silent_for) = driver.silent_for(last, (since, now), rules, &limited) else {
                continue;
            };
            if since.saturating_add(silent_for) <= now {
                let known_at = last.inserted_at.saturating_add(silent_for);
                // Time, place and speed are those of one fix, so that a receiver can join the event
                // to it.
                out.push(Event { known_at, ..event(last, Kind::Silent, "") });
                driver.is_silent = true;
            }
        }
        self.remove_decided(first, out);
    }

    /// Restarts the measurement of every silence at this server time, after the server's clock was
    /// set: times of older inserts cannot be compared with it.
    pub fn restart_silences(&mut self, now: i64) {
        self.clock_set_at = now;
    }

    /// Forgets erased drivers. Returns their ids, each with the names of the fences that had an
    /// event of the driver.
    pub fn forget(&mut self, is_erased: impl Fn(&str) -> bool) -> Vec<(String, Vec<String>)> {
        let erased = self.drivers.extract_if(|id, _| is_erased(id));
        erased.map(|(id, driver)| (id, driver.fences.into_keys().collect())).collect()
    }

    /// Returns how many numbers are missing from the drivers' `seq`, as far as this process has
    /// read.
    #[must_use]
    pub fn missing(&self) -> i64 {
        self.missing
    }

    #[must_use]
    pub fn drivers(&self) -> usize {
        self.drivers.len()
    }
}

/// Returns the driver's state, created if necessary; `None` for a new driver beyond
/// [`DRIVERS_MAX`].
fn driver<'a>(drivers: &'a mut HashMap<String, Driver>, id: &str) -> Option<&'a mut Driver> {
    let has_room = drivers.len() < DRIVERS_MAX || drivers.contains_key(id);
    has_room.then(|| drivers.entry(id.to_owned()).or_default())
}

impl Driver {
    fn handle_fix(&mut self, fix: Fix, rules: &Rules, out: &mut Vec<Event>) {
        if self.last_fix.as_ref().is_some_and(|last| order(&fix) <= order(last)) {
            return;
        }
        if let Some(last) = &self.last_fix {
            self.rhythm.add(fix.inserted_at - last.inserted_at, fix.ts - last.ts);
        }
        self.last_fix = Some(fix.clone());
        if std::mem::take(&mut self.is_silent) {
            out.push(event(&fix, Kind::Heard, ""));
        }
        // Do what a tick before this insert would have done.
        let is_undecided = self.cross_alone(fix.inserted_at, rules, out);
        if self.may_have_crossed && !is_undecided {
            for (fence, stay) in self.fences.iter_mut().filter(|(_, stay)| stay.is_inside) {
                let areas: Vec<&Area> = rules.areas_of(fence, &fix.driver_id).collect();
                stay.overstay_at(fix.inserted_at, (&fix.driver_id, fence), &areas, out);
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

    /// Returns the time without a fix, in milliseconds, after which the driver is silent; `None`:
    /// never. If valid fences around the driver have such a rule, the longest of their times
    /// decides. Otherwise it is `rules.silent_for`, or `rules.silent_gaps` times the driver's usual
    /// gap if that is longer. `since`: time from which the silence is measured.
    fn silent_for(
        &self,
        last: &Fix,
        (since, now): (i64, i64),
        rules: &Rules,
        limited: &Limited,
    ) -> Option<i64> {
        let inside = self.fences.iter().filter(|(_, stay)| stay.is_inside);
        let patience = |(fence, _): (&String, &Stay)| {
            let areas = limited.areas(fence);
            let is_for_driver = |area: &&&Area| area.is_for(&last.driver_id);
            let counts = |ms: &i64| {
                let known_at = since.saturating_add(*ms).min(now);
                areas.iter().filter(is_for_driver).any(|area| area.is_valid(known_at))
            };
            let valid = areas.iter().filter(is_for_driver).filter(|area| area.is_valid(last.ts));
            valid.filter_map(|area| area.limits.silent_for).filter(counts).max()
        };
        let fence_limit = inside.filter_map(patience).max();
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a time")]
        let rhythm_limit = (self.rhythm.usual() as f64 * rules.silent_gaps) as i64;
        let fleet_limit = rules.silent_for.map(|silent_for| silent_for.max(rhythm_limit));
        fence_limit.or(fleet_limit).filter(|ms| *ms < i64::MAX)
    }

    fn move_to(&mut self, fix: Fix, rules: &Rules, out: &mut Vec<Event>) {
        let not_crossed = self.confirm_crossings(&fix, rules, out);
        let mut was_inside = BTreeSet::new();
        for (fence, stay) in self.fences.iter_mut().filter(|(_, stay)| stay.is_inside) {
            if !not_crossed.contains(fence) {
                was_inside.insert(fence.clone());
            }
            stay.overstay_by(&fix, fence, rules.areas_of(fence, &fix.driver_id), out);
        }
        let surroundings = Surroundings::of(&fix, &self.fences, rules);
        let last = self.last_good.as_ref().map(|good| (good, &was_inside));
        self.speeding.judge(last, &fix, &surroundings, rules.faster_than, out);
        self.may_have_crossed = !surroundings.crossed.is_empty();
        self.is_at_rest = is_at_rest(self.last_good.as_ref(), &fix);
        self.last_good = Some(fix);
    }
}

/// Returns the sort key of fixes: the device's clock, then its counter, as in `last_positions`.
fn order(fix: &Fix) -> (i64, u32) {
    (fix.ts, fix.seq)
}

/// Returns whether no vehicle can cover the distance between two fixes in the time between them.
fn is_impossible(from: &Fix, to: &Fix) -> bool {
    let ms = to.ts - from.ts;
    #[expect(clippy::cast_precision_loss, reason = "at most an hour")]
    let reach = || JUMP_M + JUMP_M_PER_MS * ms as f64;
    ms <= GAP_MS_MAX && metres([from.lat, from.lng], [to.lat, to.lng]) > reach()
}
