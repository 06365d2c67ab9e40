//! Derives events from fixes in the order of their inserts: entered and left a fence, silent and
//! heard again, fast and slow again, jumps.
//!
//! Guarantee: an event is a function of the fixes before it. A fix that is repeated, or older than
//! a processed one, changes nothing. So the same fixes in the same order give the same events with
//! the same ids, however often the process restarts.

mod area;
pub mod reader;
mod sequence;
pub(crate) mod store;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub use self::area::Area;
use self::sequence::Sequence;

/// Worst accuracy in metres of a fix that counts for a place, as in `driver_days_mv`.
pub(crate) const ACCURACY_M_MAX: f64 = 200.0;
/// A movement is impossible if it is longer than 100 m and 100 m more for each second. The limit is
/// the same for every vehicle; `driver_days_mv` has one for each, in `trip_rules`.
const JUMP_M: f64 = 100.0;
const JUMP_M_PER_MS: f64 = 0.1;
/// Share of the limit below which a fast driver is slow again, so that speeds around the limit give
/// one event.
const SLOW_PART: f64 = 0.95;
/// Longest gap between two fixes that are judged as one movement.
const GAP_MS: i64 = 3_600_000;
/// Mean radius of the earth.
const EARTH_M: f64 = 6_371_008.8;
/// Most drivers in memory, some 450 bytes each.
const DRIVERS_MAX: usize = 1_000_000;

/// A row of `positions`, in plain units.
#[derive(Debug, Clone, PartialEq)]
pub struct Fix {
    pub driver_id: String,
    /// Milliseconds since 1970, like all times here.
    pub ts: i64,
    pub seq: u32,
    pub lat: f64,
    pub lng: f64,
    /// m/s
    pub speed: Option<f64>,
    /// Metres.
    pub acc: Option<f64>,
    /// Time of the insert, by the server's clock.
    pub inserted_at: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Entered,
    Left,
    Silent,
    Heard,
    Fast,
    Slow,
    Jump,
}

impl Kind {
    pub const ALL: [Self; 7] =
        [Self::Entered, Self::Left, Self::Silent, Self::Heard, Self::Fast, Self::Slow, Self::Jump];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Entered => "entered",
            Self::Left => "left",
            Self::Silent => "silent",
            Self::Heard => "heard",
            Self::Fast => "fast",
            Self::Slow => "slow",
            Self::Jump => "jump",
        }
    }

    /// Returns the kind that ends the state which this one begins, and the reverse. A jump is not a
    /// state.
    fn opposite(self) -> Self {
        match self {
            Self::Entered => Self::Left,
            Self::Left => Self::Entered,
            Self::Silent => Self::Heard,
            Self::Heard => Self::Silent,
            Self::Fast => Self::Slow,
            Self::Slow => Self::Fast,
            Self::Jump => Self::Jump,
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A state of a driver. Each kind of event begins or ends one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Fence(String),
    Contact,
    Speed,
}

/// An event of a driver at a fix.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub driver_id: String,
    pub kind: Kind,
    /// Name of the fence; empty for other kinds.
    pub fence: String,
    /// Time of the fix: the first one inside or outside, the first that is fast or slow, the last
    /// before a silence, or the one that jumped.
    pub ts: i64,
    /// Sequence number of the same fix: a device may send several in one millisecond, or have a
    /// clock of seconds.
    pub seq: u32,
    pub lat: f64,
    pub lng: f64,
    pub speed: Option<f64>,
    /// Server time at which the event was known: the fix was inserted, or the silence was long
    /// enough.
    pub known_at: i64,
}

impl Event {
    /// Returns the event's id, which depends on its content alone: every process gives the same
    /// event the same id.
    #[must_use]
    pub fn id(&self) -> String {
        let Self { driver_id, kind, fence, ts, seq, .. } = self;
        let of_fence = if fence.is_empty() { "" } else { "/" };
        format!("{driver_id}/{}/{ts}/{seq}{of_fence}{fence}", kind.name())
    }

    /// Returns the driver and the state that the event changes; `None` for a jump.
    pub(crate) fn state(&self) -> Option<(String, State)> {
        let state = match self.kind {
            Kind::Entered | Kind::Left => State::Fence(self.fence.clone()),
            Kind::Silent | Kind::Heard => State::Contact,
            Kind::Fast | Kind::Slow => State::Speed,
            Kind::Jump => return None,
        };
        Some((self.driver_id.clone(), state))
    }
}

/// The fences and limits that decide which events there are.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub areas: Vec<Area>,
    /// Milliseconds without a fix after which a driver is silent.
    pub silent_for: Option<i64>,
    /// Speed in m/s above which a driver is fast.
    pub faster_than: Option<f64>,
    /// Metres beyond its border at which a driver has left a fence. A device at rest on the border
    /// would leave and enter with each error of its position.
    pub fence_margin: f64,
}

/// State of one driver.
#[derive(Debug, Clone, Default)]
struct Driver {
    /// The newest fix of all. A fix that is not newer changes nothing.
    heard: Option<Fix>,
    /// Where the driver is: the newest fix that is accurate and no jump.
    newest: Option<Fix>,
    /// A fix reached at an impossible speed. The next fix decides whether it is a jump.
    suspect: Option<Fix>,
    /// Fences with an event of the driver, and whether the driver is inside.
    fences: BTreeMap<String, bool>,
    is_fast: bool,
    is_silent: bool,
    sequence: Sequence,
}

/// State of all drivers; see the module.
#[derive(Debug, Default)]
pub struct Watch {
    pub rules: Rules,
    drivers: HashMap<String, Driver>,
    /// Known events of the replayed time, oldest first; in `decided` the time of the last one of
    /// each state.
    known: VecDeque<Event>,
    decided: HashMap<(String, State), i64>,
    /// Number of fixes of drivers beyond [`DRIVERS_MAX`].
    pub passed_over: u64,
    /// Numbers missing from the drivers' `seq` since the process began. Late fixes reduce it.
    missing: i64,
}

impl Watch {
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Restores a driver from a fix of the time before the replay. Fixes come oldest first; the
    /// last three of a driver decide whether one of them is a jump.
    pub fn begin_with(&mut self, fix: Fix) {
        if let Some(driver) = driver(&mut self.drivers, &fix.driver_id) {
            driver.sequence.begin(fix.seq, fix.ts);
            driver.take(fix, &Rules::default(), &mut Vec::new());
        }
    }

    /// Adds the known events of the replayed time, oldest first. They decide the states of that
    /// time, because fences and limits may have changed since.
    pub fn play_again(&mut self, known: Vec<Event>) {
        self.decided =
            known.iter().filter_map(|event| Some((event.state()?, event.known_at))).collect();
        self.known = known.into();
    }

    /// Restores the states before these events, which are given oldest first: an event ends the
    /// opposite state. Called after [`begin_with`](Self::begin_with).
    pub fn begin_before<'a>(&mut self, known: impl DoubleEndedIterator<Item = &'a Event>) {
        for event in known.rev() {
            self.begin_with_event(&Event { kind: event.kind.opposite(), ..event.clone() });
        }
    }

    /// Restores a state from a known event, oldest first. Called after
    /// [`begin_with`](Self::begin_with).
    pub fn begin_with_event(&mut self, event: &Event) {
        let Some(driver) = driver(&mut self.drivers, &event.driver_id) else { return };
        match event.kind {
            Kind::Entered | Kind::Left => {
                driver.fences.insert(event.fence.clone(), event.kind == Kind::Entered);
            }
            Kind::Silent | Kind::Heard => driver.is_silent = event.kind == Kind::Silent,
            Kind::Fast | Kind::Slow => driver.is_fast = event.kind == Kind::Fast,
            Kind::Jump => {}
        }
    }

    /// Processes a fix and appends its events to `out`.
    pub fn take(&mut self, fix: Fix, out: &mut Vec<Event>) {
        while self.known.front().is_some_and(|event| event.known_at < fix.inserted_at) {
            let event = self.known.pop_front().expect("it is there");
            self.begin_with_event(&event);
        }
        let first = out.len();
        let Self { rules, drivers, decided, passed_over, missing, .. } = self;
        let Some(driver) = driver(drivers, &fix.driver_id) else {
            *passed_over += 1;
            return;
        };
        *missing += driver.sequence.take(fix.seq, fix.ts);
        driver.take(fix, rules, out);
        if !decided.is_empty() {
            let is_later = |event: &Event| {
                event
                    .state()
                    .and_then(|state| decided.get(&state))
                    .is_none_or(|at| *at <= event.known_at)
            };
            let found = out.split_off(first);
            out.extend(found.into_iter().filter(is_later));
        }
    }

    /// Appends the drivers that have fallen silent. `now`: the server's time up to which all
    /// inserted fixes are processed.
    pub fn tick(&mut self, now: i64, out: &mut Vec<Event>) {
        let Some(silent_for) = self.rules.silent_for else { return };
        for driver in self.drivers.values_mut().filter(|driver| !driver.is_silent) {
            let Some(heard) = &driver.heard else { continue };
            let known_at = heard.inserted_at.saturating_add(silent_for);
            if known_at <= now {
                // Time, place and speed are those of one fix, so that a receiver can join the event
                // to it.
                out.push(Event { known_at, ..event(heard, Kind::Silent, "") });
                driver.is_silent = true;
            }
        }
    }

    /// Forgets erased drivers. Returns each with the fences that had an event of the driver.
    pub fn forget(&mut self, is_erased: impl Fn(&str) -> bool) -> Vec<(String, Vec<String>)> {
        let gone = self.drivers.extract_if(|id, _| is_erased(id));
        gone.map(|(id, driver)| (id, driver.fences.into_keys().collect())).collect()
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
    fn take(&mut self, fix: Fix, rules: &Rules, out: &mut Vec<Event>) {
        if self.heard.as_ref().is_some_and(|heard| order(&fix) <= order(heard)) {
            return;
        }
        self.heard = Some(fix.clone());
        if std::mem::take(&mut self.is_silent) {
            out.push(event(&fix, Kind::Heard, ""));
        }
        if fix.acc.is_some_and(|acc| acc > ACCURACY_M_MAX) {
            return;
        }
        if let Some(suspect) = self.suspect.take() {
            let around = self.newest.as_ref().is_none_or(|newest| !is_impossible(newest, &fix));
            if around && is_impossible(&suspect, &fix) {
                out.push(Event { known_at: fix.inserted_at, ..event(&suspect, Kind::Jump, "") });
            } else {
                self.be_at(Fix { inserted_at: fix.inserted_at, ..suspect }, rules, out);
            }
        }
        if self.newest.as_ref().is_some_and(|newest| is_impossible(newest, &fix)) {
            self.suspect = Some(fix);
        } else {
            self.be_at(fix, rules, out);
        }
    }

    /// A driver is fast from the first of two fixes in a row on, since one alone may be an error of
    /// the device.
    fn judge_speed(&mut self, fix: &Fix, rules: &Rules, out: &mut Vec<Event>) {
        let (Some(limit), Some(speed)) = (rules.faster_than, fix.speed) else { return };
        let slow = limit * SLOW_PART;
        if self.is_fast && speed <= slow {
            out.push(event(fix, Kind::Slow, ""));
            self.is_fast = false;
        } else if !self.is_fast && speed > slow {
            let is_first = |last: &&Fix| {
                fix.ts - last.ts <= GAP_MS && last.speed.is_some_and(|speed| speed > limit)
            };
            if let Some(first) = self.newest.as_ref().filter(is_first) {
                out.push(Event { known_at: fix.inserted_at, ..event(first, Kind::Fast, "") });
                self.is_fast = true;
            }
        }
    }

    fn be_at(&mut self, fix: Fix, rules: &Rules, out: &mut Vec<Event>) {
        self.judge_speed(&fix, rules, out);
        let place = [fix.lng, fix.lat];
        let around = rules.areas.iter().filter(|area| area.has(fix.ts, place));
        let inside: BTreeSet<&String> = around.map(|area| &area.name).collect();
        let left =
            |(fence, is_inside): &(&String, &mut bool)| **is_inside && !inside.contains(fence);
        for (fence, is_inside) in self.fences.iter_mut().filter(left) {
            let mut of_name = rules.areas.iter().filter(|area| area.name == *fence);
            if !of_name.any(|area| area.is_near(fix.ts, place, rules.fence_margin)) {
                *is_inside = false;
                out.push(event(&fix, Kind::Left, fence));
            }
        }
        for fence in inside {
            if self.fences.get(fence) != Some(&true) {
                self.fences.insert(fence.clone(), true);
                out.push(event(&fix, Kind::Entered, fence));
            }
        }
        self.newest = Some(fix);
    }
}

/// Returns the sort key of fixes: the device's clock, then its counter, as in `last_positions`.
fn order(fix: &Fix) -> (i64, u32) {
    (fix.ts, fix.seq)
}

fn event(fix: &Fix, kind: Kind, fence: &str) -> Event {
    Event {
        driver_id: fix.driver_id.clone(),
        kind,
        fence: fence.to_owned(),
        ts: fix.ts,
        seq: fix.seq,
        lat: fix.lat,
        lng: fix.lng,
        speed: fix.speed,
        known_at: fix.inserted_at,
    }
}

/// Returns whether no vehicle covers the distance between the two fixes in the time between them.
fn is_impossible(from: &Fix, to: &Fix) -> bool {
    let ms = to.ts - from.ts;
    #[expect(clippy::cast_precision_loss, reason = "at most an hour")]
    let reach = || JUMP_M + JUMP_M_PER_MS * ms as f64;
    ms <= GAP_MS && metres(from, to) > reach()
}

/// Returns the distance of two fixes on a sphere, in metres.
fn metres(a: &Fix, b: &Fix) -> f64 {
    let (lat_a, lat_b) = (a.lat.to_radians(), b.lat.to_radians());
    let half = |d: f64| (d.to_radians() / 2.0).sin().powi(2);
    let h = half(b.lat - a.lat) + lat_a.cos() * lat_b.cos() * half(b.lng - a.lng);
    2.0 * EARTH_M * h.sqrt().min(1.0).asin()
}
