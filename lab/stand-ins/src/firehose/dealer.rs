//! Who gets which messages, at what rate.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::segment;

/// At a slow rate a segment does not wait longer than this to become full.
const SEGMENT_WITHIN: Duration = Duration::from_millis(10);
/// No member gets further ahead of the slowest than this.
const AHEAD_MAX: u64 = 4 * 1024;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// 1 to ten million.
    pub drivers: u32,
    /// 0 or 1, at most.
    pub qos: u8,
    /// Messages a second over all members; none: what they take.
    pub rate: Option<f64>,
}

#[derive(Debug, Default)]
pub(super) struct Dealer {
    pub(super) next: u64,
    /// Since when, and how many before that; `None`: closed.
    pub(super) open: Option<(Instant, u64)>,
    pub(super) given: BTreeMap<usize, u64>,
    pub(super) members: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) first: u64,
    pub(super) len: u64,
}

impl Dealer {
    pub(super) fn deal(&mut self, member: usize, plan: &Plan) -> Option<Block> {
        let (since, before) = self.open?;
        let slowest = *self.given.values().min()?;
        let given = self.given.get_mut(&member)?;
        if *given >= slowest + AHEAD_MAX {
            return None;
        }
        let mut len = segment::MESSAGES;
        if let Some(rate) = plan.rate {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count of messages"
            )]
            let whole = |messages: f64| messages as u64;
            let due = (before + whole(since.elapsed().as_secs_f64() * rate)).saturating_sub(self.next);
            if due < len.min(whole(rate * SEGMENT_WITHIN.as_secs_f64())).max(1) {
                return None;
            }
            len = len.min(due);
        }
        *given += len;
        let first = self.next;
        self.next += len;
        Some(Block { first, len })
    }
}
