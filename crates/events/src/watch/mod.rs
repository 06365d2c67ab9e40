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
mod driver;
mod event;
mod fenced;
mod limits;
pub mod reader;
mod rhythm;
mod rules;
mod sequence;
pub(crate) mod store;

use std::collections::{HashMap, VecDeque};

pub use self::area::Area;
pub(crate) use self::driver::ACCURACY_M_MAX;
use self::driver::Driver;
pub use self::event::{Event, Fix, Kind};
use self::event::{State, event};
use self::fenced::{Stay, TimeLimited};
pub use self::limits::Limits;
pub use self::rules::Rules;

/// Maximum number of drivers in memory. Each needs some 620 bytes, and 130 for each fence in which
/// it has been.
const DRIVERS_MAX: usize = 1_000_000;

/// State of all drivers; see the module.
#[derive(Debug, Default)]
pub struct Watch {
    pub rules: Rules,
    /// Boxed, because a map reserves up to twice the room that its entries need.
    drivers: HashMap<String, Box<Driver>>,
    /// Events of the replayed time that are in the table already, oldest first.
    known: VecDeque<Event>,
    /// `known_at` of the newest known event of each state.
    decided: HashMap<(String, State), i64>,
    /// Number of fixes of drivers beyond [`DRIVERS_MAX`], which cause no events.
    pub untracked_fixes: u64,
    /// Server time at which the server's clock was last set; 0: never. A silence is measured from
    /// this time at the earliest.
    clock_set_at: i64,
    /// Lowest `known_at` of new events: the newest time that the server's clock showed before it
    /// was set back; 0: never. This bound keeps events in the order in which they were found, so
    /// that the last event found decides a state.
    known_at_min: i64,
    /// Count of the numbers missing from the drivers' `seq` since the process began. A late fix
    /// reduces the count.
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
            driver.restore_fix(fix);
        }
    }

    /// Sets the known events of the replayed time, oldest first. For that time, these events decide
    /// the states, not the fixes: fences and limits may have changed since.
    pub fn replay_known(&mut self, known: Vec<Event>) {
        self.decided =
            known.iter().filter_map(|event| Some((event.state()?, event.known_at))).collect();
        self.known = known.into();
    }

    /// Restores the states before these events, which are given oldest first. The kind of an event
    /// implies the state before it. Must be called after [`restore_fix`](Self::restore_fix).
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
                driver.fences.insert(&event.fence, Stay::after(event));
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
        self.order_events(first, out);
    }

    /// Raises `known_at` of the events from index `first` on to the lowest allowed one. Removes
    /// each of them that is older than the newest known event of its state.
    fn order_events(&self, first: usize, out: &mut Vec<Event>) {
        for event in &mut out[first..] {
            event.known_at = event.known_at.max(self.known_at_min);
        }
        let decided = &self.decided;
        if decided.is_empty() {
            return;
        }
        let is_later = |event: &Event| {
            if event.kind == Kind::OffHours {
                // An earlier process decided about `off_hours` together with the crossing at the
                // same fix.
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

    /// Appends the events that the passing of time causes: a driver has fallen silent, has stayed
    /// in a fence for too long, or has crossed a border with a fix that no other fix followed.
    pub fn tick(&mut self, now: i64, out: &mut Vec<Event>) {
        let first = out.len();
        let Self { rules, drivers, clock_set_at, .. } = self;
        let limited = TimeLimited::new(&rules.areas);
        for (id, driver) in drivers {
            let is_waiting_for_time = driver.accept_lone_crossings(now, rules, out);
            if is_waiting_for_time {
                continue;
            }
            for (fence, stay) in driver.fences.inside_mut() {
                stay.judge_stay_at_time(now, (id, fence), limited.areas(fence), out);
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
        self.order_events(first, out);
    }

    /// Restarts the measurement of every silence at `now`, after the server's clock was set: times
    /// of older inserts cannot be compared with those of new ones. `expected`: the time that the
    /// clock would show otherwise.
    pub fn handle_clock_step(&mut self, now: i64, expected: i64) {
        self.clock_set_at = now;
        if now < expected {
            self.known_at_min = self.known_at_min.max(expected);
        }
    }

    /// Forgets erased drivers. Returns their ids, each with the names of the fences that had an
    /// event of the driver.
    pub fn forget(&mut self, is_erased: impl Fn(&str) -> bool) -> Vec<(String, Vec<String>)> {
        // A known event that is still to be replayed would restore the driver.
        self.known.retain(|event| !is_erased(&event.driver_id));
        self.decided.retain(|(id, _), _| !is_erased(id));
        let erased = self.drivers.extract_if(|id, _| is_erased(id));
        erased.map(|(id, driver)| (id, driver.fences.into_names())).collect()
    }

    /// Returns how many numbers are missing from the drivers' `seq` in the fixes that this process
    /// has read.
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
fn driver<'a>(drivers: &'a mut HashMap<String, Box<Driver>>, id: &str) -> Option<&'a mut Driver> {
    let has_room = drivers.len() < DRIVERS_MAX || drivers.contains_key(id);
    has_room.then(|| &mut **drivers.entry(id.to_owned()).or_default())
}
