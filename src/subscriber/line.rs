//! One connection: a stream, what has been read and not taken, what is to be written, and whether the other
//! side still lives. It dies as a whole, so nothing of it can meet the next one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use crate::tls::{self, Stream};
use crate::wire::{self, Input, WireError};

/// More bytes than this are not put into the write buffer: acknowledgements wait in the lane instead.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error(transparent)]
    NotReached(#[from] tls::Error),
    #[error("the connection broke: {words}")]
    Tls {
        words: String,
        #[source]
        source: io::Error,
    },
    #[error("no answer to our CONNECT within {0:?}")]
    Unanswered(Duration),
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    #[error("the broker closed the connection")]
    Closed,
    #[error("the connection hangs: nothing came for {0:?}, not even the answer to a ping")]
    Silent(Duration),
    #[error("the connection hangs: for {0:?} the broker has taken none of what we write")]
    Blocked(Duration),
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl LineError {
    /// Whether a connection can end so before CONNACK because one side speaks TLS and the other does not.
    pub(super) fn may_be_tls(&self) -> bool {
        match self {
            Self::Unanswered(_) | Self::Broken(_) | Self::Closed => true,
            Self::Wire(error) => match error {
                WireError::RemainingLength | WireError::Unexpected(_) | WireError::TooLarge { .. } => true,
                WireError::ExactlyOnce
                | WireError::Publish
                | WireError::Refused(_)
                | WireError::Disconnected { .. }
                | WireError::Codec(_) => false,
            },
            Self::NotReached(_) | Self::Tls { .. } | Self::Silent(_) | Self::Blocked(_) => false,
        }
    }
}

/// A client's certificate is refused after the handshake, in TLS 1.3: so reads and writes tell of TLS too.
fn broken(source: io::Error) -> LineError {
    match tls::explain("mqtt", &source) {
        Some(words) => LineError::Tls { words, source },
        None if source.kind() == io::ErrorKind::UnexpectedEof => LineError::Closed, // no farewell in TLS
        None => LineError::Broken(source),
    }
}

pub(super) struct Line {
    stream: Box<dyn Stream>,
    /// What came.
    pub(super) input: Input,
    /// Something was read since [`take_came`](Self::take_came).
    came: bool,
    /// Bytes read since [`take_bytes`](Self::take_bytes).
    bytes: usize,
    unsent: BytesMut,
    unflushed: bool,
    /// DISCONNECT is in `unsent`.
    disconnecting: bool,
    hung_up: bool,
    clock: KeepAlive,
}

impl Line {
    /// `hello` is CONNECT's bytes.
    pub(super) fn new(stream: Box<dyn Stream>, hello: BytesMut, packet_bytes_max: u32, now: Instant) -> Self {
        let packet_bytes_max = usize::try_from(packet_bytes_max).unwrap_or(usize::MAX);
        Self {
            stream,
            input: Input::new(packet_bytes_max),
            came: false,
            bytes: 0,
            unsent: hello,
            unflushed: false,
            disconnecting: false,
            hung_up: false,
            clock: KeepAlive::new(now),
        }
    }

    /// Reads what is there; ready when something came. Not for a line whose packets have not all been taken.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LineError>> {
        let mut buffer = ReadBuf::new(self.input.space());
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)).map_err(broken)?;
        let bytes = buffer.filled().len();
        if bytes == 0 {
            return Poll::Ready(Err(LineError::Closed));
        }
        self.input.came(bytes);
        self.came = true;
        self.bytes += bytes;
        Poll::Ready(Ok(()))
    }

    /// Writes what the stream takes; ready when nothing is left.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LineError>> {
        while !self.unsent.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.unsent);
            let bytes = ready!(written).map_err(broken)?;
            if bytes == 0 {
                return Poll::Ready(Err(LineError::Closed));
            }
            self.unsent.advance(bytes);
            self.unflushed = true;
            self.clock.written(Instant::now());
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx)).map_err(broken)?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when something came, or when the last of what was to be written is.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, reading: bool) -> Poll<Result<(), LineError>> {
        if reading && let Poll::Ready(read) = self.poll_read(cx) {
            return Poll::Ready(read);
        }
        if self.has_unsent() { self.poll_write(cx) } else { Poll::Pending }
    }

    /// Whether something was read since this was last asked.
    pub(super) fn take_came(&mut self) -> bool {
        std::mem::take(&mut self.came)
    }

    /// How many bytes were read since this was last asked.
    pub(super) fn take_bytes(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// The broker lived at `now`.
    pub(super) fn heard(&mut self, now: Instant) {
        self.clock.heard(now);
    }

    /// From CONNACK on there are pings.
    pub(super) fn keep_alive(&mut self, keep_alive: Duration) {
        self.clock.keep_alive = Some(keep_alive);
    }

    /// Where our packets go.
    pub(super) fn output(&mut self, now: Instant) -> &mut BytesMut {
        if !self.has_unsent() {
            self.clock.waiting_since = now;
        }
        &mut self.unsent
    }

    pub(super) fn disconnect(&mut self, now: Instant) -> Result<(), LineError> {
        wire::put_disconnect(self.output(now))?;
        self.disconnecting = true;
        Ok(())
    }

    /// DISCONNECT and everything before it is the system's now; says so once.
    pub(super) fn take_disconnect_sent(&mut self) -> bool {
        let sent = self.disconnecting && !self.has_unsent();
        self.disconnecting &= !sent;
        sent
    }

    /// The lane is done with it.
    pub(super) fn hang_up(&mut self) {
        self.hung_up = true;
    }

    pub(super) fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    pub(super) fn takes_more(&self) -> bool {
        self.unsent.len() < UNSENT_BYTES_MAX
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unflushed || !self.unsent.is_empty()
    }

    /// When to call [`watch`](Self::watch) at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.clock.next(self.has_unsent()).map(|(at, _)| at)
    }

    /// Pings when it is time to, and ends a connection that hangs.
    pub(super) fn watch(&mut self, now: Instant) -> Result<(), LineError> {
        match self.clock.next(self.has_unsent()) {
            Some((at, due)) if at <= now => match due {
                Due::Ping => {
                    wire::put_ping(self.output(now))?;
                    self.clock.pinged_at.get_or_insert(now);
                    Ok(())
                }
                Due::Silent => Err(LineError::Silent(now.duration_since(self.clock.heard_at))),
                Due::Blocked => Err(LineError::Blocked(now.duration_since(self.clock.waiting_since))),
            },
            Some(_) | None => Ok(()),
        }
    }
}

enum Due {
    Ping,
    Silent,
    Blocked,
}

/// Pings after three quarters of the keep-alive without a packet either way, and gives up after two whole
/// ones: brokers wait one and a half for us.
struct KeepAlive {
    /// `None` until CONNACK, which has a time limit of its own.
    keep_alive: Option<Duration>,
    heard_at: Instant,
    written_at: Instant,
    /// Since when bytes wait of which none has been written.
    waiting_since: Instant,
    /// The first ping since which nothing has been heard.
    pinged_at: Option<Instant>,
}

impl KeepAlive {
    fn new(now: Instant) -> Self {
        Self { keep_alive: None, heard_at: now, written_at: now, waiting_since: now, pinged_at: None }
    }

    fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.pinged_at = None;
    }

    fn written(&mut self, now: Instant) {
        self.written_at = now;
        self.waiting_since = now;
    }

    fn next(&self, has_unsent: bool) -> Option<(Instant, Due)> {
        let keep_alive = self.keep_alive?;
        let quarter = keep_alive / 4;
        let silent = self.pinged_at.map(|pinged_at| (pinged_at + 5 * quarter, Due::Silent));
        let other = if has_unsent {
            (self.waiting_since + 2 * keep_alive, Due::Blocked)
        } else if self.pinged_at.is_some() {
            (self.written_at + 3 * quarter, Due::Ping)
        } else {
            (self.written_at.min(self.heard_at) + 3 * quarter, Due::Ping)
        };
        Some(match silent {
            Some(silent) if silent.0 <= other.0 => silent,
            Some(_) | None => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{DuplexStream, duplex};

    use super::*;

    const KEEP_ALIVE: Duration = Duration::from_secs(8);
    const PACKET_BYTES_MAX: u32 = 1_024;

    fn line(socket_bytes: usize, now: Instant) -> (Line, DuplexStream) {
        let (ours, theirs) = duplex(socket_bytes);
        let mut line = Line::new(Box::new(ours), BytesMut::new(), PACKET_BYTES_MAX, now);
        line.keep_alive(KEEP_ALIVE);
        (line, theirs)
    }

    fn write(line: &mut Line) -> Poll<Result<(), LineError>> {
        line.poll_write(&mut Context::from_waker(Waker::noop()))
    }

    /// Lets time pass as the shell does; the seconds at which there was a ping, and how it ended.
    fn pass(line: &mut Line, began: Instant, seconds: u64) -> (Vec<u64>, Option<LineError>) {
        let mut pings = Vec::new();
        for second in 0..seconds {
            let now = began + Duration::from_secs(second);
            assert!(line.deadline().is_some_and(|at| at > began), "time passes");
            if let Err(error) = line.watch(now) {
                return (pings, Some(error));
            }
            if line.has_unsent() && write(line).is_ready() {
                line.clock.written(now);
                pings.push(second);
            }
        }
        (pings, None)
    }

    #[test]
    fn an_idle_connection_is_pinged_and_a_silent_one_given_up_after_two_keep_alives() {
        let began = Instant::now();
        let (mut line, _broker) = line(1_000, began);
        let (pings, end) = pass(&mut line, began, 60);
        assert_eq!(pings, [6, 12]);
        assert!(matches!(end, Some(LineError::Silent(after)) if after == 2 * KEEP_ALIVE), "{end:?}");
    }

    #[test]
    fn an_answer_to_a_ping_is_enough() {
        let began = Instant::now();
        let (mut line, _broker) = line(1_000, began);
        for round in 1..9 {
            let now = began + round * KEEP_ALIVE;
            line.watch(now).unwrap();
            assert!(write(&mut line).is_ready());
            line.heard(now);
        }
    }

    #[test]
    fn a_broker_that_reads_nothing_is_given_up_and_costs_no_more_than_the_bound() {
        let began = Instant::now();
        let (mut line, _broker) = line(100, began);
        for packet_id in 1..=u16::MAX {
            if line.takes_more() {
                wire::put_ack(packet_id, line.output(began));
            }
        }
        assert_eq!(line.unsent.len(), UNSENT_BYTES_MAX);
        assert!(write(&mut line).is_pending(), "and does not block");
        assert_eq!(line.unsent.len(), UNSENT_BYTES_MAX - 100);
        line.heard(began + 2 * KEEP_ALIVE);
        let (pings, end) = pass(&mut line, began, 60);
        assert!(pings.is_empty(), "they would come after what waits");
        assert!(matches!(end, Some(LineError::Blocked(_))), "{end:?}");
    }

    #[test]
    fn a_disconnect_is_sent_when_everything_before_it_is() {
        let began = Instant::now();
        let (mut line, mut broker) = line(4, began);
        wire::put_ack(7, line.output(began));
        line.disconnect(began).unwrap();
        assert!(write(&mut line).is_pending());
        assert!(!line.take_disconnect_sent());
        let mut bytes = [0; 8];
        let mut buffer = ReadBuf::new(&mut bytes);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut broker).poll_read(&mut cx, &mut buffer).is_ready());
        assert!(write(&mut line).is_ready());
        assert!(line.take_disconnect_sent());
        assert!(!line.take_disconnect_sent(), "once");
        assert!(Pin::new(&mut broker).poll_read(&mut cx, &mut buffer).is_ready());
        assert_eq!(buffer.filled(), [0x40, 2, 0, 7, 0xE0, 0]);
    }
}
