//! Decides whether the wall clock can be trusted. The age of each fix is measured with this clock.
//!
//! `src/app/schema.rs` compares the wall clock with ClickHouse's clock every 30 s. Between two
//! comparisons, the monotonic clock detects jumps.
//!
//! Before the first comparison, for example while ClickHouse is down, the fleet's messages are the
//! reference: if the clock is right, most messages are fresh. A message is out of range if at least
//! one of its fixes would be rejected as too old or too new. The clock is in doubt if at least one
//! message was out of range, and at least as many messages were out of range as were fresh.
//!
//! While the clock is in doubt, a QoS 1 message is deferred if it is out of range, or if one of its
//! fixes has no time and would get the time of this clock. All later QoS 1 messages of the same
//! session are deferred too. Other messages are accepted.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::delivery::events::ClockComparison;
use crate::intake::{AgeCheck, Now, SessionIndex};

/// Whether the wall clock can be trusted; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Largest tolerated jump of the wall clock.
    jump_max: Duration,
    /// Last reading of the wall clock and the monotonic clock.
    last: Option<Now>,
    /// Why the clock cannot be trusted, after a jump or a comparison; `None` if it can be trusted.
    fault: Option<String>,
    /// Number of jumps so far.
    jumps: u64,
    /// The clock has been compared with ClickHouse's clock at least once.
    was_compared: bool,
    /// Messages before the first comparison that were fresh, see [`AgeCheck::has_fresh`].
    fresh: u64,
    /// Messages before the first comparison that were out of range.
    out_of_range: u64,
    /// Sessions with a message that is deferred until the clock is trusted.
    deferring_sessions: BTreeSet<SessionIndex>,
}

impl Clock {
    pub(super) fn new(jump_max: Duration) -> Self {
        Self { jump_max, ..Self::default() }
    }

    pub(super) fn was_compared(&self) -> bool {
        self.was_compared
    }

    /// Counts a message that arrives before the first comparison, and returns whether it may be
    /// accepted. A QoS 0 message (`session` is `None`) is always accepted, because the broker would
    /// not redeliver it.
    pub(super) fn may_accept(&mut self, session: Option<SessionIndex>, ages: AgeCheck) -> bool {
        self.fresh += u64::from(ages.has_fresh);
        self.out_of_range += u64::from(ages.has_out_of_range);
        let must_wait = self.is_in_doubt() && (ages.has_out_of_range || ages.has_undated);
        self.deferring_sessions.extend(session.filter(|_| must_wait));
        !must_wait || session.is_none()
    }

    /// Returns whether the session has deferred messages because the clock is in doubt.
    pub(super) fn defers_messages_of(&self, session: SessionIndex) -> bool {
        self.is_in_doubt() && self.deferring_sessions.contains(&session)
    }

    fn is_in_doubt(&self) -> bool {
        !self.was_compared && self.out_of_range > 0 && self.out_of_range >= self.fresh
    }

    /// Returns the line of `/readyz`. `None` if the clock can be trusted, or if it is in doubt but
    /// no message has been deferred for that reason.
    pub(super) fn unready_reason(&self) -> Option<&str> {
        let in_doubt = "this host's clock has not been compared with ClickHouse's yet, and would \
                        reject most fixes: messages with such fixes, and all later ones, stay with \
                        the broker until the clocks have been compared";
        self.fault()
            .or((self.is_in_doubt() && !self.deferring_sessions.is_empty()).then_some(in_doubt))
    }

    /// Returns why the clock cannot be trusted, after a jump or a comparison.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    pub(super) fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Detects a jump of the wall clock: since the last call, the wall clock and the monotonic
    /// clock have advanced by different times, and the difference is more than `jump_max`.
    pub(super) fn detect_jump(&mut self, now: Now) {
        let Some(last) = self.last.replace(now) else { return };
        let passed = now.instant.saturating_duration_since(last.instant);
        let passed_ms = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        let jump_ms = (now.wall.unix_ms() - last.wall.unix_ms()).saturating_sub(passed_ms);
        let jump = Duration::from_millis(jump_ms.unsigned_abs());
        if jump > self.jump_max {
            self.jumps += 1;
            let direction = if jump_ms > 0 { "forward" } else { "back" };
            self.fault = Some(format!(
                "this host's clock jumped {jump:.0?} {direction}: messages stay with the broker \
                 until the clock has been compared with ClickHouse's"
            ));
        }
    }

    /// Processes a comparison with ClickHouse's clock. Ignores a comparison that was made before
    /// the last jump.
    pub(super) fn record_comparison(&mut self, comparison: ClockComparison) {
        if comparison.jumps == self.jumps {
            (self.fault, self.was_compared) = (comparison.fault, true);
            self.deferring_sessions.clear();
        }
    }
}
