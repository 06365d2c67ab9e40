//! The result of a process, and the signals that end it.

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The result of a process, from which its exit code follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything received is durable and acknowledged.
    Clean,
    /// Data is left in the spool, or in the broker, which keeps the data until the session expires.
    DataLeft,
}

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs handlers for both signals.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn new() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next SIGTERM or SIGINT.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
