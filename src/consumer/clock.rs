//! Whether the wall clock can be trusted. The age of a fix is measured with it.
//!
//! `app/schema.rs` compares it with ClickHouse's every 30 s. Between two comparisons a jump shows against the monotonic clock.
//! Before the first one, with ClickHouse away, only messages wait that the clock would judge: fixes that it would refuse as too
//! old or too new, and fixes without a time. The others flow.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::intake::{Now, SessionIndex};

#[derive(Debug)]
pub(super) struct Clock {
    jump_max: Duration,
    last: Option<Now>,
    off: Option<String>,
    jumps: u64,
    was_compared: bool,
    /// Sessions with a message that waits for the first comparison.
    wanted_by: BTreeSet<SessionIndex>,
}

impl Clock {
    pub(super) fn new(jump_max: Duration) -> Self {
        let wanted_by = BTreeSet::new();
        Self { jump_max, last: None, off: None, jumps: 0, was_compared: false, wanted_by }
    }

    pub(super) fn was_compared(&self) -> bool {
        self.was_compared
    }

    /// A message of this session must not be judged before the first comparison.
    pub(super) fn wanted_by(&mut self, session: SessionIndex) {
        self.wanted_by.insert(session);
    }

    pub(super) fn is_wanted_by(&self, session: SessionIndex) -> bool {
        self.wanted_by.contains(&session)
    }

    /// For `/readyz`.
    pub(super) fn unready_reason(&self) -> Option<&str> {
        let awaited = "our clock was not compared with ClickHouse's yet: fixes that it would refuse or date, and what came \
                       behind them, stay with the broker";
        self.off().or((!self.wanted_by.is_empty()).then_some(awaited))
    }

    pub(super) fn off(&self) -> Option<&str> {
        self.off.as_deref()
    }

    pub(super) fn jumps(&self) -> u64 {
        self.jumps
    }

    pub(super) fn read(&mut self, now: Now) {
        let Some(last) = self.last.replace(now) else { return };
        let passed = now.instant.saturating_duration_since(last.instant);
        let passed_ms = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        let jump_ms = (now.wall.unix_ms() - last.wall.unix_ms()).saturating_sub(passed_ms);
        let jump = Duration::from_millis(jump_ms.unsigned_abs());
        if jump > self.jump_max {
            self.jumps += 1;
            let direction = if jump_ms > 0 { "forward" } else { "back" };
            self.off = Some(format!(
                "our clock jumped {jump:.0?} {direction}: messages stay with the broker until it was compared with ClickHouse's"
            ));
        }
    }

    /// The clocks were compared. A result from before the last jump is void.
    pub(super) fn compared(&mut self, off: Option<String>, jumps: u64) {
        if jumps == self.jumps {
            (self.off, self.was_compared) = (off, true);
            self.wanted_by.clear();
        }
    }
}
