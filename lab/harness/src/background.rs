//! A fleet that sends while its caller does something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};
use loadgen::manifest::Manifest;
use loadgen::publish::{Plan, Progress, run};

/// A fleet that sends from a thread of its own.
pub struct Background {
    pub progress: Arc<Progress>,
    thread: JoinHandle<Result<Manifest>>,
}

impl Background {
    /// Starts it; one that [goes on](Progress::goes_on) does so until [`finish`](Self::finish).
    #[must_use]
    pub fn start(plan: Plan, goes_on: bool) -> Self {
        let progress =
            Arc::new(Progress { goes_on: AtomicBool::new(goes_on), ..Progress::default() });
        let watched = Arc::clone(&progress);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run(&plan, watched))
        });
        Self { progress, thread }
    }

    /// It has sent everything, or failed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the load early: only what is made already is still sent.
    pub fn drain(&self) {
        self.progress.drains.store(true, Ordering::Relaxed);
    }

    /// Waits until it has sent everything.
    pub fn finish(self) -> Result<Manifest> {
        self.progress.goes_on.store(false, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the fleet's thread died"))?
    }
}
