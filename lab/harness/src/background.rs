//! A fleet that publishes from its own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};
use loadgen::manifest::Manifest;
use loadgen::publish::{Plan, Progress, run};

/// A running fleet.
pub struct Background {
    pub progress: Arc<Progress>,
    thread: JoinHandle<Result<Manifest>>,
}

impl Background {
    /// Starts the fleet. With `endless` it publishes until [`finish`](Self::finish), even beyond
    /// its plan.
    #[must_use]
    pub fn start(plan: Plan, endless: bool) -> Self {
        let progress =
            Arc::new(Progress { endless: AtomicBool::new(endless), ..Progress::default() });
        let shared = Arc::clone(&progress);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run(&plan, shared))
        });
        Self { progress, thread }
    }

    /// Returns `true` if the fleet has sent everything, or has failed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the load early: the fleet sends the messages that it has already generated, and no
    /// others.
    pub fn drain(&self) {
        self.progress.ends_early.store(true, Ordering::Relaxed);
    }

    /// Ends an endless load, waits until the fleet has sent everything, and returns the manifest.
    pub fn finish(self) -> Result<Manifest> {
        self.progress.endless.store(false, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the fleet's thread panicked"))?
    }
}
