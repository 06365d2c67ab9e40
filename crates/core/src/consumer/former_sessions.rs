//! Former sessions: sessions that an earlier process with more sessions left behind. The broker
//! queues messages for a former session until the session expires.
//!
//! Guarantee: each former session is unsubscribed before it is emptied. Many former sessions are
//! visited at the same time. No former session is ended before all have been found. They are then
//! ended from the highest index down, so a process that dies meanwhile leaves no gap in the
//! indices. After a gap of several indices, the next process would end its search too early.

use crate::session::Session;
use crate::session::events::ConnectionState;

/// Maximum number of sessions of a process. A broker whose windows are so small that more sessions
/// are needed is unsuitable.
pub const CONNECTIONS_MAX: usize = 64;
/// The search ends after this many consecutive indices without a session. In a cluster, one more
/// index is searched for each node after the first: if a node was down, the previous process could
/// not create a session on that node, which leaves a gap in the indices. If many sessions were
/// found, the search covers more indices, see [`VISITS_PER_FOUND`].
const ABSENT_MAX: usize = 3;
/// If the visit with number n, counted from 1, finds a former session, the search covers at least n
/// times this many further indices, but no index from [`CONNECTIONS_MAX`] on. All of them are
/// visited at the same time. This finds many former sessions fast: each CONNACK that finds a
/// session starts several visits, which do not wait for each other. A broker without former
/// sessions gets only [`ABSENT_MAX`] visits, and one more for each node after the first. `milepost
/// drain` visits every index.
const VISITS_PER_FOUND: usize = 3;

/// Counts of former sessions since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FormerSessionTotals {
    /// Sessions that the broker still held.
    pub found: u64,
    /// Visits that did not reach their session, or could not empty it.
    pub unfinished: u64,
    /// Sessions that did not exist, although a session with a higher index did. Their messages are
    /// lost, unless the former process never created the sessions because a node was down.
    pub expired: u64,
    /// Sessions that another client seems to have used while they were visited.
    pub contested: u64,
}

/// The search for former sessions, and the order in which they are ended.
#[derive(Debug)]
pub(super) struct FormerSessions {
    /// Visit every index: for `milepost drain`, whose previous process may have had any number of
    /// sessions.
    visits_all: bool,
    /// Every index at which a session may exist has been visited.
    search_complete: bool,
    /// Counts that cannot be read from the list of visits any more: expired sessions, and visits
    /// whose session began to consume.
    counted: FormerSessionTotals,
}

impl FormerSessions {
    pub(super) fn new(visits_all: bool) -> Self {
        Self { visits_all, search_complete: false, counted: FormerSessionTotals::default() }
    }

    pub(super) fn is_search_complete(&self) -> bool {
        self.search_complete
    }

    pub(super) fn expired(&self) -> u64 {
        self.counted.expired
    }

    /// Advances the search: returns whether to visit the next index now, and notes when the search
    /// is complete. `nodes`: number of the broker's nodes. The first `consuming` sessions consume;
    /// all later sessions are visits.
    pub(super) fn advance_search(
        &mut self,
        sessions: &[Session],
        consuming: usize,
        nodes: usize,
    ) -> bool {
        if self.search_complete {
            return false;
        }
        let visits = &sessions[consuming..];
        // Number of visits up to the last visit that found a session.
        let found_below = visits.iter().rposition(Session::was_found).map_or(0, |last| last + 1);
        let absent_max = if self.visits_all {
            CONNECTIONS_MAX
        } else {
            (ABSENT_MAX + nodes.saturating_sub(1)).max(found_below * VISITS_PER_FOUND)
        };
        let sessions_wanted = (consuming + found_below + absent_max).min(CONNECTIONS_MAX);
        if sessions.len() < sessions_wanted {
            return true;
        }
        self.search_complete = visits[found_below..].iter().all(has_ended);
        if self.search_complete && !self.visits_all {
            let has_expired =
                |visit: &&Session| has_ended(visit) && !visit.was_found() && !visit.was_abandoned();
            self.counted.expired = visits[..found_below].iter().filter(has_expired).count() as u64;
        }
        false
    }

    /// Returns whether the visit with this index may end its session: the search is complete, and
    /// all sessions with a higher index have ended.
    pub(super) fn may_end(&self, sessions: &[Session], index: usize) -> bool {
        self.search_complete && sessions[index + 1..].iter().all(has_ended)
    }

    /// Keeps the counts of a visit whose session starts to consume, because a counter never
    /// decreases.
    pub(super) fn keep_counts(&mut self, visit: &Session) {
        self.counted = self.totals(std::slice::from_ref(visit));
    }

    /// Returns the counts since the process began. `visits`: the sessions that are visits now.
    pub(super) fn totals(&self, visits: &[Session]) -> FormerSessionTotals {
        let count = |matches: fn(&Session) -> bool| {
            visits.iter().filter(|visit| matches(visit)).count() as u64
        };
        FormerSessionTotals {
            found: self.counted.found + count(Session::was_found),
            unfinished: self.counted.unfinished + count(Session::was_abandoned),
            expired: self.counted.expired,
            contested: self.counted.contested + count(Session::is_contested),
        }
    }
}

fn has_ended(session: &Session) -> bool {
    session.connection() == ConnectionState::Ended
}
