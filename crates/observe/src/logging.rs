//! Writes log lines to stderr.
//!
//! Guarantee: logging does not wait for the reader of stderr. Only an exit or a panic waits, for at
//! most a second. A dedicated thread writes the lines from a bounded queue. A line that does not
//! fit into the queue is dropped and counted. While lines are dropped, `/readyz` reports it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use milepost_config::{Log, LogFormat};

/// Maximum time for which an exit or a panic waits for the queued lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static LINES: LazyLock<Lines> = LazyLock::new(Lines::default);

/// Starts logging for the rest of the process.
///
/// # Panics
/// If `start` was called before, or if the configuration has not checked the filter.
pub fn start(log: &Log) {
    LINES.lock().bytes_max = log.queue_bytes_max;
    let filter: Targets = log.filter.parse().expect("the configuration has checked the filter");
    let lines = tracing_subscriber::fmt::layer().with_writer(|| &*LINES).with_target(false);
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    let write = || LINES.write_to(&mut io::stderr(), || false);
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(write)
        .expect("a thread can be started");
    // Replace the default hook: it writes to stderr itself, and never returns if no process reads
    // stderr.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("<unnamed>");
        let is_captured = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
        let backtrace = if is_captured { format!("{backtrace}\n") } else { String::new() };
        LINES.push(format!("\nthread '{thread}' {panic}\n{backtrace}").as_bytes());
        flush();
    }));
}

/// Waits until the queued lines are written, for at most a second. Call it before the process
/// exits.
pub fn flush() {
    LINES.flush(FLUSH_TIMEOUT);
}

/// Returns the number of lines dropped since the start.
pub fn dropped() -> u64 {
    LINES.dropped.load(Ordering::Relaxed)
}

/// Returns a warning for `/readyz` while log lines are dropped. The process stays ready, because it
/// still inserts.
#[must_use]
pub fn warning() -> Option<String> {
    let is_dropping = LINES.lock().is_dropping;
    is_dropping.then(|| {
        format!(
            "log: nobody reads stderr: {} lines dropped (milepost_log_lines_dropped_total)",
            dropped()
        )
    })
}

/// The queue between the threads that log and the thread that writes.
#[derive(Default)]
struct Lines {
    state: Mutex<State>,
    changed: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    /// Bytes of the queued lines, and of the line that is being written.
    bytes: usize,
    bytes_max: usize,
    is_writing: bool,
    /// Becomes true when a line is dropped, and false once every queued line is written.
    is_dropping: bool,
    /// Number of dropped lines that a log line has reported.
    reported: u64,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a line. Drops and counts the line if the queue is full.
    fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.bytes + line.len() > state.bytes_max {
            state.is_dropping = true;
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.bytes += line.len();
        state.queue.push_back(line.to_vec());
        drop(state);
        self.changed.notify_all();
    }

    /// Writes lines as they arrive, until `is_over` returns `true` and the queue is empty. A line
    /// that cannot be written counts as dropped.
    fn write_to(&self, out: &mut impl Write, is_over: impl Fn() -> bool) {
        loop {
            let state = self.lock();
            let waits = |state: &mut State| state.queue.is_empty() && !is_over();
            let mut state =
                self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
            let Some(line) = state.queue.pop_front() else { return };
            state.is_writing = true;
            drop(state);
            let is_written = out.write_all(&line).is_ok();
            let mut state = self.lock();
            state.bytes -= line.len();
            state.is_writing = false;
            if !is_written {
                state.is_dropping = true;
                self.dropped.fetch_add(1, Ordering::Relaxed);
            } else if state.queue.is_empty() {
                state.is_dropping = false;
                let dropped = self.dropped.load(Ordering::Relaxed);
                let unreported = dropped - std::mem::replace(&mut state.reported, dropped);
                if unreported > 0 {
                    let report = format!(
                        "milepost: {unreported} log lines were dropped: nobody read stderr\n"
                    );
                    state.bytes += report.len();
                    state.queue.push_back(report.into_bytes());
                }
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits until every queued line is written, at most for `timeout`.
    fn flush(&self, timeout: Duration) {
        let waits = |state: &mut State| !state.queue.is_empty() || state.is_writing;
        drop(self.changed.wait_timeout_while(self.lock(), timeout, waits));
    }
}

/// Queues one line: the tracing layer writes each line with a single call.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use super::*;

    /// Blocks at each line until the test reads it, as a full pipe does.
    struct Pipe(mpsc::SyncSender<String>);

    impl Write for Pipe {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8_lossy(line).into_owned();
            self.0.send(text).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn unread_lines_are_dropped_without_blocking() {
        let (lines, over) = (Lines::default(), AtomicBool::new(false));
        lines.lock().bytes_max = 100;
        let (sender, reader) = mpsc::sync_channel(0);
        std::thread::scope(|scope| {
            scope.spawn(|| lines.write_to(&mut Pipe(sender), || over.load(Ordering::Relaxed)));
            for _ in 0..50 {
                lines.push(b"0123456789"); // would hang if it waited for the reader
            }
            // Ten lines fit into 100 bytes, including the line that waits for the reader.
            assert_eq!(lines.dropped.load(Ordering::Relaxed), 40);
            assert!(lines.lock().is_dropping);
            lines.flush(Duration::from_millis(10)); // returns although nothing is read
            let read: Vec<String> = reader.iter().take(11).collect();
            assert!(read[..10].iter().all(|line| line == "0123456789"), "{read:?}");
            assert_eq!(read[10], "milepost: 40 log lines were dropped: nobody read stderr\n");
            lines.flush(Duration::from_secs(10));
            assert!(!lines.lock().is_dropping);
            over.store(true, Ordering::Relaxed);
            lines.changed.notify_all();
        });
    }
}
