//! The state of ClickHouse: whether inserts may begin, whether it answers, and since when it does not.

use std::time::{Duration, Instant};

use crate::delivery::events::{Attention, Schema, ServerStatus};
use crate::delivery::sink::FailureKind;
use crate::throttle::Throttle;

/// While ClickHouse seems to be away, a fresh batch is tried this often: the failing one may itself be the cause.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// An insert without an answer makes ClickHouse's health doubtful after this.
const DOUBT_AFTER: Duration = Duration::from_secs(1);
/// An insert without an answer is logged after this.
const LOGGED_AFTER: Duration = Duration::from_secs(5);
/// An insert without an answer makes this process unready after this.
const UNREADY_AFTER: Duration = Duration::from_secs(20);
/// Longest timeout of an insert.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// An insert may take this many times as long as the last one that committed.
const TIMEOUT_PER_INSERT: u32 = 4;
/// After this many consecutive failures of one batch, or of files in turn, the server counts as down.
const FAILURES_UNREADY: u32 = 3;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Server {
    schema: Schema,
    /// The last attempt failed, and a person must act.
    stopped: bool,
    /// If the last attempt failed: when a fresh batch is tried next.
    probe_at: Option<Instant>,
    /// How long an insert may take: at least what is configured; more after one that ran into it.
    timeout: Duration,
    timeout_min: Duration,
    /// Inserts that got through.
    successes: u64,
    /// The first attempt since one last had an answer, failures aside.
    waiting_since: Option<Instant>,
    no_answer_log: Throttle,
    /// Why the last attempt failed, if none has got through since, and how many of its batch had failed.
    last_failure: Option<(String, u32)>,
    /// A question on another connection has no answer.
    silent: Option<(String, Instant)>,
    /// Inserts that were refused for good.
    refusals: u64,
}

impl Server {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            timeout_min: timeout,
            schema: Schema::Unknown("not asked yet".to_owned()),
            stopped: false,
            probe_at: None,
            successes: 0,
            waiting_since: None,
            no_answer_log: Throttle::once(),
            last_failure: None,
            silent: None,
            refusals: 0,
        }
    }

    pub(super) fn has_tables(&self) -> bool {
        self.schema == Schema::Ready
    }

    /// A person must mend a table, a grant or a login before an insert can succeed. While nothing answers, that is not known.
    pub(super) fn needs_a_person(&self) -> bool {
        self.stopped && self.silent.is_none() || matches!(self.schema, Schema::Refused(_))
    }

    /// Attempts fail, and it is not time to try a fresh batch.
    pub(super) fn is_away(&self, now: Instant) -> bool {
        !self.stopped && self.probe_at.is_some_and(|at| now < at)
    }

    pub(super) fn successes(&self) -> u64 {
        self.successes
    }

    /// An attempt begins.
    pub(super) fn attempted(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
        if let Some(at) = self.probe_at.as_mut().filter(|_| !self.stopped) {
            *at = now + PROBE_EVERY;
        }
    }

    /// How long the next insert may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// An attempt was answered. `next`: since when another one has been under way.
    pub(super) fn waits_since(&mut self, next: Option<Instant>) {
        self.waiting_since = next;
    }

    /// An insert committed.
    pub(super) fn succeeded(&mut self, took: Duration) {
        self.timeout = (took * TIMEOUT_PER_INSERT).clamp(self.timeout_min, TIMEOUT_MAX.max(self.timeout_min));
        self.successes += 1;
        self.stopped = false;
        self.probe_at = None;
        self.no_answer_log.reset();
        self.last_failure = None;
    }

    /// An attempt failed. `failures`: consecutive ones of its batch.
    pub(super) fn failed(&mut self, kind: FailureKind, why: &str, failures: u32, now: Instant) {
        let permanent = kind == FailureKind::Permanent;
        if kind == FailureKind::TimedOut {
            self.timeout = (self.timeout * 2).min(TIMEOUT_MAX.max(self.timeout_min));
        }
        self.stopped = permanent;
        self.probe_at.get_or_insert(now + PROBE_EVERY);
        let worst = self.last_failure.as_ref().map_or(0, |(_, failures)| *failures);
        self.last_failure = Some((why.to_owned(), failures.max(worst)));
        if permanent {
            // A table may be another one, or gone: the ledger of migrations is asked before anything else is inserted.
            self.schema = Schema::Unknown(format!("asked again after: {why}"));
            self.refusals += 1;
        }
    }

    /// What failed last is not to be inserted any more: its drivers are erased, or it is in quarantine.
    pub(super) fn nothing_waits(&mut self) {
        self.last_failure = None;
        self.waiting_since = None;
    }

    /// What ClickHouse answered when it was last asked.
    pub(super) fn observed(&mut self, status: ServerStatus, now: Instant) {
        let ServerStatus { schema, answers, refusals, .. } = status;
        // Tables that were looked at before the last refusal may have gone since.
        if refusals == self.refusals {
            self.schema = schema;
        }
        self.silent = answers.err().map(|why| (why, self.silent.take().map_or(now, |(_, since)| since)));
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent.is_some()
    }

    /// What to ask ClickHouse, and how soon. An insert under way is no doubt until it has taken long: under traffic there
    /// always is one.
    pub(super) fn attention(&self, now: Instant) -> Attention {
        let is_slow = self.waiting_since.is_some_and(|since| now >= since + DOUBT_AFTER);
        let in_doubt = is_slow || self.last_failure.is_some() || self.silent.is_some() || !self.has_tables();
        Attention { in_doubt, refusals: self.refusals, clock_jumps: 0 }
    }

    /// For how long an insert has had no answer, when that is to be logged.
    pub(super) fn no_answer_to_log(&mut self, now: Instant) -> Option<Duration> {
        let for_ = now.saturating_duration_since(self.waiting_since?);
        let is_due = for_ >= LOGGED_AFTER && self.last_failure.is_none() && self.no_answer_log.allow(now);
        is_due.then_some(for_)
    }

    /// Lines of `/readyz`: why inserts fail.
    pub(super) fn unready_reasons(&self, now: Instant) -> Vec<String> {
        let mut reasons = Vec::new();
        match &self.schema {
            Schema::Ready => {}
            Schema::Unknown(why) | Schema::Refused(why) => reasons.push(format!("clickhouse: {why}")),
        }
        let for_ = self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        match (&self.last_failure, &self.silent) {
            (Some((why, failures)), _)
                if self.stopped || *failures >= FAILURES_UNREADY || for_ >= UNREADY_AFTER =>
            {
                reasons.push(format!("clickhouse: no insert gets through: {why}"));
            }
            (None, _) if for_ >= UNREADY_AFTER => {
                reasons.push(format!("clickhouse: no answer to an insert for {} s", for_.as_secs()));
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
        server.observed(ServerStatus::ready(), began);
        (server, began)
    }

    #[test]
    fn an_insert_may_take_four_times_the_last_one_and_twice_as_long_after_a_timeout() {
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
    fn a_fresh_batch_is_tried_every_five_seconds_while_the_server_is_away() {
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
    fn an_insert_without_an_answer_is_logged_once_and_then_makes_unready() {
        let (mut server, began) = server();
        let at = |millis| began + Duration::from_millis(millis);
        server.attempted(began);
        assert_eq!(server.no_answer_to_log(at(4_999)), None);
        assert_eq!(server.no_answer_to_log(at(5_000)), Some(Duration::from_secs(5)));
        assert_eq!(server.no_answer_to_log(at(60_000)), None);
        assert!(server.unready_reasons(at(19_999)).is_empty());
        assert_eq!(server.unready_reasons(at(20_000)), ["clickhouse: no answer to an insert for 20 s"]);
    }

    #[test]
    fn failures_and_silence_make_unready_when_they_last() {
        use FailureKind::{Permanent, Transient};
        let cases = [
            (Transient, 2, 19, false),
            (Transient, 2, 20, true),
            (Transient, 3, 0, true),
            (Permanent, 1, 0, true),
        ];
        for (kind, failures, seconds, is_told) in cases {
            let (mut server, began) = server();
            server.attempted(began);
            server.failed(kind, "why", failures, began);
            let told = server.unready_reasons(began + Duration::from_secs(seconds)).join("; ");
            assert_eq!(
                told.contains("no insert gets through: why"),
                is_told,
                "{kind:?} {failures} {seconds}: {told}"
            );
        }
        let (mut server, began) = server();
        let silent = ServerStatus { answers: Err("nobody".to_owned()), ..ServerStatus::ready() };
        server.observed(silent, began);
        let told =
            [19, 20].map(|seconds| server.unready_reasons(began + Duration::from_secs(seconds)).join("; "));
        assert_eq!(told, ["", "clickhouse: nobody"]);
    }
}
