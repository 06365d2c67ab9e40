//! The health of ClickHouse: whether inserts may start, and whether it answers.

use std::time::{Duration, Instant};

use crate::delivery::events::{Schema, ServerStatus, WatcherRequest};
use crate::delivery::sink::FailureKind;
use crate::throttle::Throttle;

/// While inserts fail, a fresh batch is attempted at this interval, in case the failing batch
/// itself is the cause.
const FRESH_ATTEMPT_EVERY: Duration = Duration::from_secs(5);
/// An insert without an answer makes the watcher query ClickHouse's clock after this long.
const CLOCK_QUERIED_AFTER: Duration = Duration::from_secs(1);
/// An insert without an answer is logged after this long.
const LOGGED_AFTER: Duration = Duration::from_secs(5);
/// An insert without an answer makes this process unready after this long.
const UNREADY_AFTER: Duration = Duration::from_secs(20);
/// Longest timeout of an insert.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// The timeout of an insert is this many times the duration of the last insert that committed.
const TIMEOUT_FACTOR: u32 = 4;
/// After this many consecutive failures of one batch, or of replayed files, the server counts as
/// down.
const FAILURES_UNREADY: u32 = 3;

/// The health of ClickHouse, as inserts and the watcher's queries show it.
#[derive(Debug)]
pub(super) struct Server {
    schema: Schema,
    /// The last attempt failed permanently, which is a refusal: an operator must act.
    is_refusing: bool,
    /// When a fresh batch is attempted next; `None` if the last attempt succeeded.
    fresh_attempt_at: Option<Instant>,
    /// Timeout of the next insert: at least `timeout_min`, longer after a slow insert or a timeout.
    timeout: Duration,
    /// The configured timeout.
    timeout_min: Duration,
    /// Number of inserts that committed.
    successes: u64,
    /// Start of the wait for an answer to an insert; `None` while no insert waits. An attempt
    /// starts the wait, unless the wait has started already.
    ///
    /// These outcomes count as answers: a commit, a refusal as too large, a piece that is left out,
    /// and unknown columns. After an answer, the wait counts from the start of the oldest attempt
    /// still in flight, or ends if there is none. Any other failure does not end the wait, even if
    /// no attempt is in flight any more. The wait also ends once no batch and no file to replay is
    /// left.
    waiting_since: Option<Instant>,
    no_answer_log: Throttle,
    /// Why the last attempt failed, and the highest number of consecutive failures, of one batch or
    /// of replayed files, since the last commit. `None` after a commit, and once no batch is left.
    last_failure: Option<(String, u32)>,
    /// Why the watcher's queries are not answered, and since when; `None` if they are answered.
    silence: Option<(String, Instant)>,
    /// Number of inserts that failed permanently.
    refusals: u64,
}

impl Server {
    /// Creates a server whose tables are not confirmed. `timeout`: the configured timeout of an
    /// insert.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            timeout_min: timeout,
            schema: Schema::Unknown("not asked yet".to_owned()),
            is_refusing: false,
            fresh_attempt_at: None,
            successes: 0,
            waiting_since: None,
            no_answer_log: Throttle::once(),
            last_failure: None,
            silence: None,
            refusals: 0,
        }
    }

    /// Returns whether the watcher has confirmed that the tables exist, with the right columns.
    pub(super) fn has_tables(&self) -> bool {
        self.schema == Schema::Ready
    }

    /// Returns whether an operator must fix a table, a grant or a login before an insert can
    /// succeed. A permanent failure of the last attempt does not count while ClickHouse is silent:
    /// why inserts would fail is then unknown.
    pub(super) fn needs_operator(&self) -> bool {
        self.is_refusing && self.silence.is_none() || matches!(self.schema, Schema::Refused(_))
    }

    /// Returns whether inserts fail, and the next attempt of a fresh batch is not due yet. `false`
    /// after a permanent failure: ClickHouse is reachable, so this is no outage.
    pub(super) fn is_away(&self, now: Instant) -> bool {
        !self.is_refusing && self.fresh_attempt_at.is_some_and(|at| now < at)
    }

    /// Returns the number of inserts that committed.
    pub(super) fn successes(&self) -> u64 {
        self.successes
    }

    /// Records the start of an attempt. While inserts fail, and not permanently, the next attempt
    /// of a fresh batch is due [`FRESH_ATTEMPT_EVERY`] later.
    pub(super) fn attempted(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
        if let Some(at) = self.fresh_attempt_at.as_mut().filter(|_| !self.is_refusing) {
            *at = now + FRESH_ATTEMPT_EVERY;
        }
    }

    /// Returns the timeout of the next insert.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Records that an attempt was answered. `oldest`: start of the oldest attempt still in flight;
    /// `None` if no attempt is.
    pub(super) fn record_answer(&mut self, oldest: Option<Instant>) {
        self.waiting_since = oldest;
    }

    /// Records a commit that took this long. The next timeout is [`TIMEOUT_FACTOR`] times as long,
    /// within its bounds.
    pub(super) fn succeeded(&mut self, took: Duration) {
        self.timeout =
            (took * TIMEOUT_FACTOR).clamp(self.timeout_min, TIMEOUT_MAX.max(self.timeout_min));
        self.successes += 1;
        self.is_refusing = false;
        self.fresh_attempt_at = None;
        self.no_answer_log.reset();
        self.last_failure = None;
    }

    /// Records a failed attempt. `failures`: consecutive failures of its batch, or of replayed
    /// files.
    pub(super) fn failed(&mut self, kind: FailureKind, why: &str, failures: u32, now: Instant) {
        let permanent = kind == FailureKind::Permanent;
        if kind == FailureKind::TimedOut {
            self.timeout = (self.timeout * 2).min(TIMEOUT_MAX.max(self.timeout_min));
        }
        self.is_refusing = permanent;
        self.fresh_attempt_at.get_or_insert(now + FRESH_ATTEMPT_EVERY);
        let worst = self.last_failure.as_ref().map_or(0, |(_, failures)| *failures);
        self.last_failure = Some((why.to_owned(), failures.max(worst)));
        if permanent {
            // The table may be missing or replaced: check the migrations before the next insert.
            self.schema = Schema::Unknown(format!("checking the tables again after: {why}"));
            self.refusals += 1;
        }
    }

    /// Clears the last failure and the wait. The caller has checked that no batch and no file to
    /// replay is left. So the rows that failed will not be tried again: for example, they were left
    /// out, put in quarantine or, without a spool, dropped.
    pub(super) fn clear_failures(&mut self) {
        self.last_failure = None;
        self.waiting_since = None;
    }

    /// Processes the result of the watcher's queries.
    pub(super) fn update(&mut self, status: ServerStatus, now: Instant) {
        let ServerStatus { schema, answers, refusals, .. } = status;
        // Ignore a check of the tables that began before the last permanent failure: the tables may
        // have changed since.
        if refusals == self.refusals {
            self.schema = schema;
        }
        self.silence =
            answers.err().map(|why| (why, self.silence.take().map_or(now, |(_, since)| since)));
    }

    /// Returns whether the watcher's last queries were not answered.
    pub(super) fn is_silent(&self) -> bool {
        self.silence.is_some()
    }

    /// Returns which queries the watcher should send, and how soon. An insert in flight causes
    /// queries only once it is slow: under traffic, some insert is always in flight.
    pub(super) fn watcher_request(&self, now: Instant) -> WatcherRequest {
        let in_doubt = self.last_failure.is_some() || self.silence.is_some() || !self.has_tables();
        let insert_is_slow =
            self.waiting_since.is_some_and(|since| now >= since + CLOCK_QUERIED_AFTER);
        // The consumer counts the jumps of the clock.
        WatcherRequest { in_doubt, insert_is_slow, refusals: self.refusals, clock_jumps: 0 }
    }

    /// Returns how long the inserts have had no answer, if this is to be logged now.
    pub(super) fn no_answer_to_log(&mut self, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.waiting_since?);
        let is_due =
            waited >= LOGGED_AFTER && self.last_failure.is_none() && self.no_answer_log.allow(now);
        is_due.then_some(waited)
    }

    /// Returns the lines of `/readyz` that explain why inserts fail.
    pub(super) fn unready_reasons(&self, now: Instant) -> Vec<String> {
        let mut reasons = Vec::new();
        match &self.schema {
            Schema::Ready => {}
            Schema::Unknown(why) | Schema::Refused(why) => {
                reasons.push(format!("clickhouse: {why}"))
            }
        }
        let waited =
            self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        match (&self.last_failure, &self.silence) {
            (Some((why, failures)), _)
                if self.is_refusing || *failures >= FAILURES_UNREADY || waited >= UNREADY_AFTER =>
            {
                reasons.push(format!("clickhouse: no insert gets through: {why}"));
            }
            (None, _) if waited >= UNREADY_AFTER => {
                reasons
                    .push(format!("clickhouse: no answer to an insert for {} s", waited.as_secs()));
            }
            (_, Some((why, since))) if now.saturating_duration_since(*since) >= UNREADY_AFTER => {
                reasons.push(format!("clickhouse: {why}"));
            }
            (Some(_) | None, Some(_) | None) => {}
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> (Server, Instant) {
        let (mut server, began) = (Server::new(Duration::from_secs(60)), Instant::now());
        server.update(ServerStatus::ready(), began);
        (server, began)
    }

    #[test]
    fn insert_timeout_follows_the_last_duration_and_doubles_on_timeout() {
        let (mut server, now) = server();
        server.succeeded(Duration::from_secs(40));
        let mut timeouts = vec![server.timeout()];
        for _ in 0..2 {
            server.failed(FailureKind::TimedOut, "slow", 1, now);
            timeouts.push(server.timeout());
        }
        server.succeeded(Duration::from_secs(1));
        timeouts.push(server.timeout());
        assert_eq!(timeouts, [160, 320, 600, 60].map(Duration::from_secs));
        assert_eq!(server.successes(), 2);
    }

    #[test]
    fn fresh_batch_is_attempted_every_five_seconds_while_inserts_fail() {
        let (mut server, began) = server();
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(!server.is_away(began));
        server.failed(FailureKind::Transient, "away", 1, began);
        assert_eq!([0, 4, 5].map(|seconds| server.is_away(at(seconds))), [true, true, false]);
        server.attempted(at(5));
        assert_eq!([9, 10].map(|seconds| server.is_away(at(seconds))), [true, false]);
        server.succeeded(Duration::ZERO);
        assert!(!server.is_away(at(5)));
    }

    #[test]
    fn unanswered_insert_is_logged_once_and_makes_the_process_unready() {
        let (mut server, began) = server();
        let at = |millis| began + Duration::from_millis(millis);
        server.attempted(began);
        assert_eq!(server.no_answer_to_log(at(4_999)), None);
        assert_eq!(server.no_answer_to_log(at(5_000)), Some(Duration::from_secs(5)));
        assert_eq!(server.no_answer_to_log(at(60_000)), None);
        assert!(server.unready_reasons(at(19_999)).is_empty());
        assert_eq!(
            server.unready_reasons(at(20_000)),
            ["clickhouse: no answer to an insert for 20 s"]
        );
    }

    #[test]
    fn slow_insert_requests_only_the_clock_and_failed_insert_all_queries() {
        let (mut server, began) = server();
        let requested = |server: &Server, millis| {
            let request = server.watcher_request(began + Duration::from_millis(millis));
            (request.insert_is_slow, request.in_doubt)
        };
        server.attempted(began);
        assert_eq!(requested(&server, 999), (false, false));
        assert_eq!(requested(&server, 1_000), (true, false));
        server.failed(FailureKind::Transient, "away", 1, began);
        let (_, in_doubt) = requested(&server, 1_000);
        assert!(in_doubt);
    }

    #[test]
    fn lasting_failures_or_silence_make_the_process_unready() {
        use FailureKind::{Permanent, Transient};
        let cases = [
            (Transient, 2, 19, false),
            (Transient, 2, 20, true),
            (Transient, 3, 0, true),
            (Permanent, 1, 0, true),
        ];
        for (kind, failures, seconds, is_reported) in cases {
            let (mut server, began) = server();
            server.attempted(began);
            server.failed(kind, "why", failures, began);
            let reasons = server.unready_reasons(began + Duration::from_secs(seconds)).join("; ");
            assert_eq!(
                reasons.contains("no insert gets through: why"),
                is_reported,
                "{kind:?} {failures} {seconds}: {reasons}"
            );
        }
        let (mut server, began) = server();
        let silent = ServerStatus { answers: Err("no answer".to_owned()), ..ServerStatus::ready() };
        server.update(silent, began);
        let reasons = [19, 20]
            .map(|seconds| server.unready_reasons(began + Duration::from_secs(seconds)).join("; "));
        assert_eq!(reasons, ["", "clickhouse: no answer"]);
    }
}
