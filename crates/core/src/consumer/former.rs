//! Former sessions: an earlier process had more sessions, and the broker keeps queueing for each.
//!
//! Guarantee: all are unsubscribed at once, side by side, and then emptied. They are ended from the highest index down: a process
//! that dies meanwhile leaves no gap in the indices, where its successor would stop looking.

use crate::session::Session;
use crate::session::events::ConnectionState;

/// Sessions of a process. More would not help: a broker whose window is that small is not made for this.
pub const CONNECTIONS_MAX: usize = 64;
/// The search ends after this many absent indices in a row, and one more for each further node of the broker: a node that was away when the
/// former process made a session for it leaves a gap.
const ABSENT_MAX: usize = 3;
/// For each former session that was found, this many more indices are visited at once. So 60 of them are under way after the third
/// answer, and a broker without any is asked for three. Visits one after the other would make messages wait for each CONNACK.
const VISITS_PER_FOUND: usize = 3;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FormerTotals {
    /// Sessions that the broker still held.
    pub found: u64,
    /// Visits that did not reach a session, or not to its end.
    pub left: u64,
    /// Sessions below one that was found, and gone with what they held.
    pub expired: u64,
    /// Sessions that another client has taken back while they were visited.
    pub contested: u64,
}

#[derive(Debug)]
pub(super) struct Former {
    /// Look at every index: for `milepost drain`, whose former process may have been of any size.
    all: bool,
    /// Every index where a session may be was visited.
    looked: bool,
    /// Those that expired, and visits that have become members.
    counted: FormerTotals,
}

impl Former {
    pub(super) fn new(all: bool) -> Self {
        Self { all, looked: false, counted: FormerTotals::default() }
    }

    pub(super) fn has_looked(&self) -> bool {
        self.looked
    }

    pub(super) fn expired(&self) -> u64 {
        self.counted.expired
    }

    /// Whether to visit the next index, with a broker of so many `nodes`. The sessions behind the first `members` are visits.
    pub(super) fn wants_visit(&mut self, sessions: &[Session], members: usize, nodes: usize) -> bool {
        if self.looked {
            return false;
        }
        let visits = &sessions[members..];
        let found = visits.iter().rposition(Session::was_found).map_or(0, |last| last + 1);
        let at_least = (ABSENT_MAX + nodes.saturating_sub(1)).max(found * VISITS_PER_FOUND);
        let absent_max = if self.all { CONNECTIONS_MAX } else { at_least };
        let reach = (members + found + absent_max).min(CONNECTIONS_MAX);
        if sessions.len() < reach {
            return true;
        }
        self.looked = visits[found..].iter().all(has_ended);
        if self.looked && !self.all {
            let is_gone = |visit: &&Session| has_ended(visit) && !visit.was_found() && !visit.was_left();
            self.counted.expired = visits[..found].iter().filter(is_gone).count() as u64;
        }
        false
    }

    /// Whether a visit may end its session: those with a higher index are ended.
    pub(super) fn may_end(&self, sessions: &[Session], index: usize) -> bool {
        self.looked && sessions[index + 1..].iter().all(has_ended)
    }

    /// A visit that has ended becomes a member. What it counted stays: a counter never falls.
    pub(super) fn becomes_member(&mut self, visit: &Session) {
        self.counted = self.totals(std::slice::from_ref(visit));
    }

    pub(super) fn totals(&self, visits: &[Session]) -> FormerTotals {
        let count = |is: fn(&Session) -> bool| visits.iter().filter(|visit| is(visit)).count() as u64;
        FormerTotals {
            found: self.counted.found + count(Session::was_found),
            left: self.counted.left + count(Session::was_left),
            expired: self.counted.expired,
            contested: self.counted.contested + count(Session::is_contested),
        }
    }
}

fn has_ended(session: &Session) -> bool {
    session.connection() == ConnectionState::Ended
}
