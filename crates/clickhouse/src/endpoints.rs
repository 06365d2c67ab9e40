//! The endpoints of `clickhouse.url`, of which one is in use at a time.
//!
//! Guarantee: when an endpoint fails, a member moves to the next one in the list at once. The
//! member returns to its own endpoint (its home) when the home answers again. Members have
//! different homes, so a group spreads over the list.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, warn};
use url::Url;

use milepost_core::throttle::Throttle;

/// Time after which a home endpoint that failed is queried again. The time doubles whenever the
/// home fails soon after the member's return, up to [`HOME_QUERY_PAUSE_MAX`].
const HOME_QUERY_PAUSE: Duration = Duration::from_secs(30);
/// Longest time after which the home is queried again.
const HOME_QUERY_PAUSE_MAX: Duration = Duration::from_secs(600);
/// Interval between log lines about failing endpoints. Without it, milepost would log every second
/// while all endpoints fail.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// Why an endpoint was left; the label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The connection failed or broke.
    Unreachable,
    /// No answer in time, although the connection was open.
    NoAnswer,
    /// Another server answers, such as a proxy; or the answer is a 200 with an error in its body.
    NotClickHouse,
    /// The table is read-only, because its replica has lost Keeper; or the login has a read-only
    /// profile.
    ReadOnly,
    /// The server's disk is full.
    NoSpace,
    /// The server cannot use Keeper.
    NoKeeper,
    /// The tables were not created, or were dropped.
    NoTables,
    /// Wrong login, or a missing grant.
    Login,
}

impl Cause {
    pub const ALL: [Self; 8] = [
        Self::Unreachable,
        Self::NoAnswer,
        Self::NotClickHouse,
        Self::ReadOnly,
        Self::NoSpace,
        Self::NoKeeper,
        Self::NoTables,
        Self::Login,
    ];

    /// Returns the value of the metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::NoAnswer => "no_answer",
            Self::NotClickHouse => "not_clickhouse",
            Self::ReadOnly => "read_only",
            Self::NoSpace => "no_space",
            Self::NoKeeper => "no_keeper",
            Self::NoTables => "no_tables",
            Self::Login => "login",
        }
    }
}

/// The state of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointStatus {
    pub url: String,
    pub in_use: bool,
    /// Number of failovers from this endpoint to another one, by [`Cause`].
    pub failovers: [u64; Cause::ALL.len()],
}

/// The endpoints and which one is in use, shared by inserts and queries.
pub(super) struct Endpoints {
    urls: Vec<Url>,
    /// Index of this member's own endpoint.
    home: usize,
    state: Mutex<State>,
}

struct State {
    /// Index of the endpoint in use.
    current: usize,
    /// Time of the next query to the home endpoint, while another one is in use.
    home_due: Option<Instant>,
    /// Time of the last return to the home endpoint.
    returned_at: Option<Instant>,
    /// Interval between queries to the home endpoint.
    pause: Duration,
    log: Throttle,
    /// Number of failovers from each endpoint, by cause.
    failovers: Vec<[u64; Cause::ALL.len()]>,
}

impl Endpoints {
    /// Creates the endpoints. `home`: the index of this member's own endpoint in `urls`; an index
    /// beyond the end wraps around.
    ///
    /// # Panics
    /// There is no URL, or a URL cannot be parsed. The configuration rejects both cases earlier.
    pub(super) fn new(urls: &[String], home: usize) -> Self {
        let urls: Vec<Url> = urls
            .iter()
            .map(|url| Url::parse(url).expect("the configuration has checked the URL"))
            .collect();
        assert!(!urls.is_empty(), "the configuration has at least one URL");
        let home = home % urls.len();
        let state = State {
            current: home,
            home_due: None,
            returned_at: None,
            pause: HOME_QUERY_PAUSE,
            log: Throttle::every(LOGGED_EVERY),
            failovers: vec![[0; Cause::ALL.len()]; urls.len()],
        };
        Self { urls, home, state: Mutex::new(state) }
    }

    /// Returns the endpoint in use, and its index for [`Self::leave`].
    pub(super) fn current(&self) -> (usize, &Url) {
        let current = self.state().current;
        (current, &self.urls[current])
    }

    /// Returns the URL of the endpoint in use.
    pub(super) fn current_url(&self) -> &Url {
        let (_, url) = self.current();
        url
    }

    /// Returns the number of endpoints.
    pub(super) fn count(&self) -> usize {
        self.urls.len()
    }

    /// Returns the other endpoints with their indexes: those after `index` in the list, then those
    /// before it.
    pub(super) fn others(&self, index: usize) -> impl Iterator<Item = (usize, &Url)> {
        let all = self.urls.iter().enumerate();
        let (before, after) = (all.clone().take(index), all.skip(index + 1));
        after.chain(before)
    }

    /// Returns the endpoints in the order of the list.
    pub(super) fn status(&self) -> Vec<EndpointStatus> {
        let state = self.state();
        let statuses = self.urls.iter().zip(&state.failovers).enumerate();
        let status = |(index, (url, failovers)): (usize, (&Url, &[u64; Cause::ALL.len()]))| {
            let url = url.as_str().trim_end_matches('/').to_owned();
            EndpointStatus { url, in_use: index == state.current, failovers: *failovers }
        };
        statuses.map(status).collect()
    }

    /// Leaves a failing endpoint for the next one, unless another request has left it already.
    pub(super) fn leave(&self, index: usize, cause: Cause, why: &str, now: Instant) {
        self.leave_for((index + 1) % self.urls.len(), index, cause, why, now);
    }

    /// Leaves a failing endpoint for the endpoint `next`, unless another request has left it
    /// already.
    pub(super) fn leave_for(
        &self,
        next: usize,
        index: usize,
        cause: Cause,
        why: &str,
        now: Instant,
    ) {
        let mut state = self.state();
        if self.urls.len() == 1 || state.current != index {
            return;
        }
        state.failovers[index][cause as usize] += 1;
        if index == self.home {
            // A home that answers queries may still refuse inserts. Each return then costs a failed
            // insert, so return less and less often.
            let has_just_returned = state.returned_at.is_some_and(|at| now - at < state.pause);
            state.pause = if has_just_returned {
                HOME_QUERY_PAUSE_MAX.min(state.pause * 2)
            } else {
                HOME_QUERY_PAUSE
            };
            state.home_due = Some(now + state.pause);
        }
        state.current = next;
        if state.current == self.home {
            state.home_due = None; // the home is in use again, because all other endpoints failed
        }
        if state.log.allow(now) {
            let (failed, next) = (self.urls[index].as_str(), self.urls[state.current].as_str());
            warn!(failed, next, why, "moved from a failing ClickHouse endpoint to another one");
        }
    }

    /// Returns the URL of the home endpoint if it is time to query the home again: another endpoint
    /// is in use, and the pause is over. Schedules the next query to the home in that case.
    pub(super) fn home_to_query(&self, now: Instant) -> Option<&Url> {
        let mut state = self.state();
        let is_due = state.home_due.is_some_and(|due| now >= due);
        is_due.then(|| {
            state.home_due = Some(now + state.pause);
            &self.urls[self.home]
        })
    }

    /// Returns to the home endpoint, which has answered.
    pub(super) fn return_home(&self, now: Instant) {
        let mut state = self.state();
        if state.current != self.home {
            (state.current, state.home_due, state.returned_at) = (self.home, None, Some(now));
            info!(
                endpoint = self.urls[self.home].as_str(),
                "back to this member's own ClickHouse endpoint"
            );
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn three_endpoints(home: usize) -> Endpoints {
        Endpoints::new(&["http://a:1", "http://b:1", "http://c:1"].map(str::to_owned), home)
    }

    fn host(endpoints: &Endpoints) -> &str {
        endpoints.current_url().host_str().unwrap()
    }

    #[test]
    fn members_start_at_different_endpoints() {
        assert_eq!([0, 1, 2, 3].map(|home| three_endpoints(home).current().0), [0, 1, 2, 0]);
    }

    #[test]
    fn failed_endpoint_is_left_only_once() {
        let (endpoints, now) = (three_endpoints(1), Instant::now());
        endpoints.leave(1, Cause::ReadOnly, "it is read-only", now);
        endpoints.leave(1, Cause::ReadOnly, "a second insert failed there, too", now);
        assert_eq!(host(&endpoints), "c");
        endpoints.leave(2, Cause::Unreachable, "refused", now);
        assert_eq!(host(&endpoints), "a");
    }

    #[test]
    fn status_counts_failovers_by_cause() {
        let (endpoints, now) = (three_endpoints(0), Instant::now());
        endpoints.leave(0, Cause::ReadOnly, "code 242", now);
        endpoints.leave(0, Cause::ReadOnly, "a second insert failed there, too", now);
        endpoints.leave(1, Cause::NoSpace, "code 243", now);
        let status = endpoints.status();
        let failovers =
            |endpoint: &EndpointStatus, cause: Cause| endpoint.failovers[cause as usize];
        let in_use: Vec<bool> = status.iter().map(|endpoint| endpoint.in_use).collect();
        assert_eq!(in_use, [false, false, true]);
        assert_eq!(failovers(&status[0], Cause::ReadOnly), 1);
        assert_eq!(failovers(&status[1], Cause::NoSpace), 1);
        assert_eq!(status.iter().flat_map(|endpoint| endpoint.failovers).sum::<u64>(), 2);
        assert_eq!(status[0].url, "http://a:1");
    }

    #[test]
    fn home_is_used_again_once_it_answers() {
        let (endpoints, now) = (three_endpoints(0), Instant::now());
        endpoints.leave(0, Cause::Unreachable, "refused", now);
        assert_eq!(endpoints.home_to_query(now + 29 * SECOND), None);
        assert_eq!(endpoints.home_to_query(now + 30 * SECOND).unwrap().host_str(), Some("a"));
        assert_eq!(endpoints.home_to_query(now + 31 * SECOND), None, "it was queried 1 s ago");
        endpoints.return_home(now + 32 * SECOND);
        assert_eq!(host(&endpoints), "a");
    }

    #[test]
    fn home_that_answers_but_refuses_inserts_is_queried_less_often() {
        let (endpoints, mut now) = (three_endpoints(0), Instant::now());
        for pause in [30, 60, 120, 240, 480, 600, 600] {
            endpoints.leave(0, Cause::ReadOnly, "code 242: read-only", now);
            assert_eq!(endpoints.home_to_query(now + (pause - 1) * SECOND), None, "{pause}");
            now += pause * SECOND;
            assert!(endpoints.home_to_query(now).is_some(), "{pause}");
            endpoints.return_home(now);
            now += SECOND;
        }
        now += 700 * SECOND;
        endpoints.leave(0, Cause::Unreachable, "after a long time", now);
        assert!(endpoints.home_to_query(now + 30 * SECOND).is_some());
    }

    #[test]
    fn home_is_tried_in_turn_if_all_endpoints_fail() {
        let (endpoints, now) = (three_endpoints(0), Instant::now());
        (0..3).for_each(|index| endpoints.leave(index, Cause::Unreachable, "refused", now));
        assert_eq!(host(&endpoints), "a");
        assert_eq!(endpoints.home_to_query(now + 100 * SECOND), None, "the home is in use");
    }

    #[test]
    fn leave_for_moves_to_the_given_endpoint_only_once() {
        let (endpoints, now) = (three_endpoints(1), Instant::now());
        let others: Vec<_> = endpoints.others(1).map(|(index, _)| index).collect();
        assert_eq!(others, [2, 0]);
        endpoints.leave_for(0, 1, Cause::NoTables, "not migrated", now);
        endpoints.leave_for(2, 1, Cause::NoTables, "a second query failed there, too", now);
        assert_eq!(host(&endpoints), "a");
        assert!(endpoints.home_to_query(now + 30 * SECOND).is_some());
    }

    #[test]
    fn single_endpoint_is_never_left() {
        let endpoints = Endpoints::new(&["http://a:1".to_owned()], 7);
        endpoints.leave(0, Cause::Unreachable, "refused", Instant::now());
        assert_eq!(host(&endpoints), "a");
    }
}
