//! What is known of ClickHouse: whether inserts may begin, whether it answers, and since when it does not.

use std::time::{Duration, Instant};

use crate::delivery::events::Schema;
use crate::delivery::sink::FailureKind;

/// While ClickHouse seems to be away, a fresh batch is tried this often all the same: one that nobody can insert must
/// not speak for all.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// An insert without an answer is told after this.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// And makes this process unready after this.
const UNREADY_AFTER: Duration = Duration::from_secs(20);
/// Longest timeout of an insert.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// An insert may take so many times as long as the last one that got through.
const TIMEOUT_PER_INSERT: u32 = 4;
/// So do so many failures of a batch in a row.
const FAILURES_UNREADY: u32 = 3;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Server {
    schema: Schema,
    /// The last attempt failed, and nobody needs to act.
    away: bool,
    /// The last attempt failed, and somebody must act.
    stopped: bool,
    probe_at: Option<Instant>,
    /// How long an insert may take: at least what is configured; more after one that ran into it.
    timeout: Duration,
    timeout_min: Duration,
    /// Inserts that got through.
    successes: u64,
    /// The first attempt since one last got through.
    waiting_since: Option<Instant>,
    told: bool,
    /// Why the last attempt failed, if none has got through since, and how many of its batch had failed.
    last_failure: Option<(String, u32)>,
    /// A question on another connection has no answer.
    silent: Option<(String, Instant)>,
    /// How often somebody should look at the tables again, because an insert was refused for good.
    questions: u64,
}

impl Server {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            timeout_min: timeout,
            schema: Schema::Unknown("not asked yet".to_owned()),
            away: false,
            stopped: false,
            probe_at: None,
            successes: 0,
            waiting_since: None,
            told: false,
            last_failure: None,
            silent: None,
            questions: 0,
        }
    }

    pub(super) fn schema(&mut self, schema: Schema) {
        self.schema = schema;
    }

    pub(super) fn has_tables(&self) -> bool {
        self.schema == Schema::Ready
    }

    /// Nothing gets in before somebody has mended a table, a grant or a login.
    pub(super) fn needs_a_person(&self) -> bool {
        self.stopped || matches!(self.schema, Schema::Refused(_))
    }

    /// Attempts fail, and it is not time to try a fresh batch.
    pub(super) fn is_away(&self, now: Instant) -> bool {
        self.away && self.probe_at.is_some_and(|at| now < at)
    }

    /// How many inserts got through so far: more of them later means that the server takes some.
    pub(super) fn successes(&self) -> u64 {
        self.successes
    }

    /// See [`Server::questions`]' field.
    pub(super) fn questions(&self) -> u64 {
        self.questions
    }

    /// An attempt begins.
    pub(super) fn attempted(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
        if self.away {
            self.probe_at = Some(now + PROBE_EVERY);
        }
    }

    /// How long the next insert may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// One got through, after so long; another one has been under way since `next`.
    pub(super) fn succeeded(&mut self, took: Duration, next: Option<Instant>) {
        self.timeout = (took * TIMEOUT_PER_INSERT).clamp(self.timeout_min, TIMEOUT_MAX.max(self.timeout_min));
        self.successes += 1;
        self.away = false;
        self.stopped = false;
        self.probe_at = None;
        self.waiting_since = next;
        self.told = false;
        self.last_failure = None;
    }

    /// One failed; so many of its batch have, in a row.
    pub(super) fn failed(&mut self, kind: FailureKind, why: &str, failures: u32, now: Instant) {
        let permanent = kind == FailureKind::Permanent;
        if kind == FailureKind::TimedOut {
            self.timeout = (self.timeout * 2).min(TIMEOUT_MAX.max(self.timeout_min));
        }
        self.stopped = permanent;
        self.away = !permanent;
        self.probe_at.get_or_insert(now + PROBE_EVERY);
        let worst = self.last_failure.as_ref().map_or(0, |(_, failures)| *failures);
        self.last_failure = Some((why.to_owned(), failures.max(worst)));
        if permanent {
            // A table may be another one, or gone: the ledger of migrations is asked before anything else is inserted.
            self.schema = Schema::Unknown(format!("asked again after: {why}"));
            self.questions += 1;
        }
    }

    /// A question on another connection was answered, or not.
    pub(super) fn answers(&mut self, answer: Result<(), String>, now: Instant) {
        self.silent = match (answer, self.silent.take()) {
            (Ok(()), _) => None,
            (Err(why), Some((_, since))) => Some((why, since)),
            (Err(why), None) => Some((why, now)),
        };
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent.is_some()
    }

    /// An insert waits for its answer, or nothing has got through lately: questions should come often.
    pub(super) fn is_doubtful(&self) -> bool {
        self.waiting_since.is_some() || self.silent.is_some() || !self.has_tables()
    }

    /// For how long there has been no answer, once that is worth a line.
    pub(super) fn no_answer_to_tell(&mut self, now: Instant) -> Option<Duration> {
        let for_ = now.saturating_duration_since(self.waiting_since?);
        if for_ < TOLD_AFTER || self.last_failure.is_some() || std::mem::replace(&mut self.told, true) {
            return None;
        }
        Some(for_)
    }

    /// Why nothing gets in, a line each.
    pub(super) fn troubles(&self, now: Instant) -> Vec<String> {
        let mut troubles = Vec::new();
        match &self.schema {
            Schema::Ready => {}
            Schema::Unknown(why) | Schema::Refused(why) => troubles.push(format!("clickhouse: {why}")),
        }
        let for_ = self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        match (&self.last_failure, &self.silent) {
            (Some((why, failures)), _)
                if self.stopped || *failures >= FAILURES_UNREADY || for_ >= UNREADY_AFTER =>
            {
                troubles.push(format!("clickhouse: no insert gets through: {why}"));
            }
            (None, _) if for_ >= UNREADY_AFTER => {
                troubles.push(format!("clickhouse: no answer to an insert for {} s", for_.as_secs()));
            }
            (_, Some((why, since))) if now.saturating_duration_since(*since) >= UNREADY_AFTER => {
                troubles.push(format!("clickhouse: {why}"));
            }
            (Some(_) | None, Some(_) | None) => {}
        }
        troubles
    }
}
