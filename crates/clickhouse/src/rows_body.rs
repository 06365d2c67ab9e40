//! The body of an insert. Just before the body is sent, it checks the age of the list of erased
//! drivers.
//!
//! After the rows of an insert were checked against the list, the insert is compressed, and may
//! wait for a connection. In the meantime the process may be paused (SIGSTOP), or its machine
//! suspended. When the first byte is sent, the list may therefore be too old.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use rustix::time::{ClockId, clock_gettime};

use milepost_core::screened::{ListAge, NotScreened};

/// The rows of an insert.
pub(super) struct RowsBody {
    /// `None` once hyper has taken the rows.
    rows: Option<Bytes>,
    list: ListAge,
}

impl RowsBody {
    pub(super) fn new(rows: Bytes, list: ListAge) -> Self {
        Self { rows: Some(rows), list }
    }
}

impl Body for RowsBody {
    type Data = Bytes;
    type Error = NotScreened;

    /// Returns all rows, or an error if the list has become too old. hyper calls this method only
    /// after it has connected, and then writes the rows at once.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NotScreened>>> {
        let Some(rows) = self.rows.take() else { return Poll::Ready(None) };
        let checked = self.list.check(now_with_suspends());
        Poll::Ready(Some(checked.map(|()| Frame::data(rows))))
    }

    fn is_end_stream(&self) -> bool {
        self.rows.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rows.as_ref().map_or(0, |rows| rows.len() as u64))
    }
}

/// Returns the current time, by which the age of the list of erased drivers is measured. Unlike
/// [`Instant::now`], this clock advances while the machine is suspended.
#[must_use]
pub fn now_with_suspends() -> Instant {
    Instant::now() + suspended()
}

/// Returns how long the machine has been suspended since the first call of this function.
fn suspended() -> Duration {
    static AT_FIRST_CALL: std::sync::OnceLock<Duration> = std::sync::OnceLock::new();
    let awake = since_boot(ClockId::Monotonic);
    let total = since_boot(ClockId::Boottime).saturating_sub(awake);
    total.saturating_sub(*AT_FIRST_CALL.get_or_init(|| total))
}

/// Returns the time of a clock that starts at boot.
fn since_boot(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap_or_default()
}
