//! One member's connection, as the thread that reads and the one that writes share it.

use std::collections::VecDeque;
use std::io::Read as _;
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_stack::lock;

const READ_BYTES: usize = 64 * 1024;
/// How often a writer that has nothing to do looks again.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// What the two threads of a connection share.
pub(super) struct Link {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

pub(super) struct State {
    /// Packets that go out before the next messages.
    pub(super) control: Vec<u8>,
    /// What was granted; `None`: not subscribed.
    pub(super) qos: Option<u8>,
    /// Packet ids that are not in flight: as many as the Receive Maximum allows.
    free: VecDeque<u16>,
    in_flight: Vec<bool>,
    pub(super) closed: bool,
}

impl Link {
    pub(super) fn new(receive_maximum: u16) -> Self {
        let state = State {
            control: Vec::new(),
            qos: None,
            free: (1..=receive_maximum).collect(),
            in_flight: vec![false; usize::from(u16::MAX) + 1],
            closed: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn wait(&self, state: MutexGuard<'_, State>) {
        drop(self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    pub(super) fn acknowledged(&self, packet_ids: impl Iterator<Item = u16>) -> Result<()> {
        let mut state = lock(&self.state);
        for packet_id in packet_ids {
            let in_flight = std::mem::take(&mut state.in_flight[usize::from(packet_id)]);
            ensure!(in_flight, "packet id {packet_id} was acknowledged, and is not in flight");
            state.free.push_back(packet_id);
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }
}

impl State {
    pub(super) fn take_ids(&mut self, at_most: u64, ids: &mut Vec<u16>) -> u64 {
        while (ids.len() as u64) < at_most
            && let Some(packet_id) = self.free.pop_front()
        {
            self.in_flight[usize::from(packet_id)] = true;
            ids.push(packet_id);
        }
        ids.len() as u64
    }
}

/// What was read and not understood yet.
#[derive(Default)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
}

impl Input {
    /// `false`: the member has closed.
    pub(super) fn read(&mut self, stream: &mut TcpStream) -> Result<bool> {
        let start = self.bytes.len();
        self.bytes.resize(start + READ_BYTES, 0);
        // A member that is killed resets its connection: that is its end, and not our fault to report.
        let read = stream.read(&mut self.bytes[start..]).unwrap_or(0);
        self.bytes.truncate(start + read);
        Ok(read > 0)
    }
}
