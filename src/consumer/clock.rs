//! Whether the wall clock can be trusted: the age of a fix is measured with it.
//!
//! ClickHouse is asked for its time every half minute, see `app/schema.rs`. Between two answers a jump is noticed here: the
//! monotonic clock did not jump with it.

use std::time::{Duration, Instant};

use crate::pipeline::position::Timestamp;

/// The two clocks, read once by the shell.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For deadlines.
    pub instant: Instant,
    /// For rows.
    pub wall: Timestamp,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Clock {
    /// A larger jump is a reason to ask.
    jump_max: Duration,
    last: Option<Now>,
    /// Why it is not trusted, if it is not.
    off: Option<String>,
    /// Jumps so far.
    jumps: u64,
}

impl Clock {
    pub(super) fn new(jump_max: Duration) -> Self {
        Self { jump_max, last: None, off: None, jumps: 0 }
    }

    /// Why it is not trusted, if it is not.
    pub(super) fn off(&self) -> Option<&str> {
        self.off.as_deref()
    }

    /// Rises with every jump: somebody should ask ClickHouse.
    pub(super) fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Both clocks were read.
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
                "our clock jumped {jump:.0?} {direction}: nothing is taken until ClickHouse has said what time it is"
            ));
        }
    }

    /// ClickHouse was asked, after so many jumps.
    pub(super) fn compared(&mut self, off: Option<String>, jumps: u64) {
        if jumps == self.jumps {
            self.off = off;
        }
    }
}
