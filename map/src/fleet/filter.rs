//! Filters the fleet for a viewer: the drivers of the viewer's scope, in the chosen states. Pure.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::{Fleet, Row, UNKNOWN};

/// Speed below which a driver counts as standing, in cm/s: GPS noise alone can look this fast.
const STANDING_CMS: u16 = 50;

/// A driver's state; the discriminant is its bit in [`Selection::states`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Moving = 1,
    Standing = 2,
    /// No fix for [`Ages::silent_s`].
    Silent = 4,
    /// The newest fix has no speed.
    Unknown = 8,
    /// No fix for [`Ages::hidden_s`]; shown only on request.
    Hidden = 16,
}

impl State {
    pub const ALL: [Self; 5] =
        [Self::Moving, Self::Standing, Self::Silent, Self::Unknown, Self::Hidden];
    /// All states except hidden.
    pub const SHOWN: u8 = 15;

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Moving => "moving",
            Self::Standing => "standing",
            Self::Silent => "silent",
            Self::Unknown => "unknown",
            Self::Hidden => "hidden",
        }
    }
}

/// Ages of a fix, in seconds, from which its driver is silent or hidden.
#[derive(Debug, Clone, Copy)]
pub struct Ages {
    pub silent_s: i64,
    pub hidden_s: i64,
}

impl Ages {
    /// Returns the state of a driver whose newest fix has this time and speed.
    #[must_use]
    pub fn state(self, ts_s: i64, speed_cms: u16, now_s: i64) -> State {
        let age_s = now_s - ts_s;
        if age_s >= self.hidden_s {
            State::Hidden
        } else if age_s >= self.silent_s {
            State::Silent
        } else if speed_cms == UNKNOWN {
            State::Unknown
        } else if speed_cms < STANDING_CMS {
            State::Standing
        } else {
            State::Moving
        }
    }
}

/// The drivers that a viewer may see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    #[default]
    All,
    /// All drivers of these groups, and these single drivers.
    Only { groups: BTreeSet<String>, drivers: BTreeSet<String> },
}

impl Scope {
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }

    /// Returns whether the scope contains all drivers of a group.
    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only { groups, .. } => groups.contains(group),
        }
    }

    /// Returns the part of the scope that is in a group. An empty name returns the whole scope.
    /// Every unknown group gives the same empty scope. The result may therefore be the key of a
    /// cache: viewers cannot fill the cache with invented names.
    #[must_use]
    pub fn in_group(self: &Arc<Self>, fleet: &Fleet, group: &str) -> Arc<Self> {
        if group.is_empty() || fleet.directory().has_group(group) {
            return self.in_named_group(fleet, group);
        }
        Arc::new(Self::Only { groups: BTreeSet::new(), drivers: BTreeSet::new() })
    }

    /// Returns the part of the scope that is in a group, even if the fleet has no such group.
    /// Queries need this, because ClickHouse may have groups that this process has not read yet.
    /// The result may contain any name that a viewer sends, so use it as a cache key only if
    /// entries expire.
    #[must_use]
    pub fn in_named_group(self: &Arc<Self>, fleet: &Fleet, group: &str) -> Arc<Self> {
        if group.is_empty() {
            return Arc::clone(self);
        }
        let directory = fleet.directory();
        let (mut groups, mut members) = (BTreeSet::new(), BTreeSet::new());
        if self.has_group(group) {
            groups.insert(group.to_owned());
        } else if let Self::Only { drivers, .. } = &**self {
            let is_member =
                |id: &&String| directory.group_name(directory.group(id.as_bytes())) == group;
            members.extend(drivers.iter().filter(is_member).cloned());
        }
        Arc::new(Self::Only { groups, drivers: members })
    }

    /// Returns whether the scope contains a driver.
    #[must_use]
    pub fn has(&self, fleet: &Fleet, id: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only { groups, drivers } => {
                let directory = fleet.directory();
                drivers.contains(id)
                    || groups.contains(directory.group_name(directory.group(id.as_bytes())))
            }
        }
    }
}

/// The drivers that a viewer selects, by scope and state. Viewers with equal selections share
/// tiles.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selection {
    pub scope: Arc<Scope>,
    /// Bits of [`State`].
    pub states: u8,
}

impl Default for Selection {
    fn default() -> Self {
        Self { scope: Arc::default(), states: State::SHOWN }
    }
}

/// A [`Selection`] as of a given time, with its groups and drivers resolved to the fleet's numbers.
pub struct Filter<'a> {
    fleet: &'a Fleet,
    ages: Ages,
    now_s: i64,
    states: u8,
    /// Whether each group is allowed, by group number, and the numbers of the drivers that are
    /// allowed in addition to the allowed groups. `None`: every driver is allowed.
    allowed: Option<(Vec<bool>, HashSet<u32>)>,
}

impl<'a> Filter<'a> {
    #[must_use]
    pub fn new(fleet: &'a Fleet, selection: &Selection, ages: Ages, now_ms: i64) -> Self {
        let allowed = match &*selection.scope {
            Scope::All => None,
            Scope::Only { groups, drivers } => Some((
                fleet.directory().flags(|name| groups.contains(name)),
                drivers.iter().filter_map(|id| fleet.number(id)).collect(),
            )),
        };
        Self { fleet, ages, now_s: now_ms / 1_000, states: selection.states, allowed }
    }

    /// Returns whether the scope contains the driver.
    #[must_use]
    pub fn allows(&self, number: u32) -> bool {
        let Some((groups, numbers)) = &self.allowed else { return true };
        groups.get(usize::from(self.fleet.group(number))).is_some_and(|is_in| *is_in)
            || numbers.contains(&number)
    }

    #[must_use]
    pub fn state(&self, ts_s: i64, speed_cms: u16) -> State {
        self.ages.state(ts_s, speed_cms, self.now_s)
    }

    /// Returns whether the scope contains the driver and the driver's state is selected.
    #[must_use]
    pub fn shows(&self, row: &Row) -> bool {
        self.state(i64::from(row.ts_s), row.speed_cms) as u8 & self.states != 0
            && self.allows(row.number())
    }
}

/// Counts of the drivers that a viewer may see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub drivers: usize,
    /// Drivers with a message in the last minute.
    pub seen_1m: usize,
    /// Arrival of the newest message, in milliseconds since 1970.
    pub newest_ms: Option<i64>,
    /// Drivers per state, in the order of [`State::ALL`].
    pub states: [usize; 5],
}

/// Counts the drivers of a scope.
#[must_use]
pub fn summary(fleet: &Fleet, scope: &Arc<Scope>, ages: Ages, now_ms: i64) -> Summary {
    let selection = Selection { scope: Arc::clone(scope), ..Selection::default() };
    let filter = Filter::new(fleet, &selection, ages, now_ms);
    let mut summary = Summary::default();
    for (number, fix) in fleet.fixes() {
        if !filter.allows(number) {
            continue;
        }
        summary.drivers += 1;
        summary.seen_1m += usize::from(fix.received_ms >= now_ms - 60_000);
        summary.newest_ms = summary.newest_ms.max(Some(fix.received_ms));
        let state = filter.state(fix.ts_ms.div_euclid(1_000), fix.speed_cms);
        summary.states[(state as u8).trailing_zeros() as usize] += 1;
    }
    summary
}
