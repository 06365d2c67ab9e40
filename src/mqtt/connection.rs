//! One connection: a stream, its read and write buffers, and its keep-alive. They are dropped
//! together, so no byte of one connection reaches the next one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::keep_alive::{Due, KeepAlive};
use milepost_mqtt as codec;
use milepost_mqtt::{CodecError, Input, Packet};
use milepost_tls as tls;
use milepost_tls::{Server, Stream};

/// Maximum bytes in the write buffer. Further acknowledgements wait in the session.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// The packet type that a TLS alert (0x15) decodes to. A TLS server sends an alert if a client
/// speaks plain MQTT.
const TLS_ALERT: u8 = 0x15 >> 4;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error(transparent)]
    NotReached(#[from] tls::Error),
    #[error("the connection broke: {explanation}")]
    Tls {
        explanation: String,
        #[source]
        source: io::Error,
    },
    #[error("no CONNACK within {0:?}")]
    Unanswered(Duration),
    #[error("the node hangs: no CONNACK, and no answer to a second client within {0:?}")]
    Hung(Duration),
    #[error("{0}")]
    Login(String),
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    #[error("the broker closed the connection")]
    Closed,
    #[error("the connection hangs: no byte received for {0:?}, not even the answer to a ping")]
    Silent(Duration),
    #[error("the connection hangs: the broker has read nothing that milepost sent for {0:?}")]
    Blocked(Duration),
    #[error("the broker sends messages at QoS 2, and does not read milepost's refusals")]
    RefusalBufferFull,
    #[error(transparent)]
    Codec(#[from] CodecError),
}

impl ConnectionError {
    /// Returns whether the cause may be that only one side speaks TLS. Call it only if the
    /// connection ended before CONNACK.
    pub(super) fn may_be_tls_mismatch(&self) -> bool {
        matches!(
            self,
            Self::Broken(_) | Self::Closed | Self::Codec(CodecError::Unexpected(TLS_ALERT))
        )
    }
}

/// Returns the error of a connection that broke. In TLS 1.3 the server refuses a client certificate
/// after the handshake, so reads and writes can return TLS errors too.
fn broken(source: io::Error) -> ConnectionError {
    match tls::explain(Server::Broker, &source) {
        Some(explanation) => ConnectionError::Tls { explanation, source },
        // The broker closed the socket without a close_notify of TLS.
        None if source.kind() == io::ErrorKind::UnexpectedEof => ConnectionError::Closed,
        None => ConnectionError::Broken(source),
    }
}

pub(super) struct Connection {
    stream: Box<dyn Stream>,
    input: Input,
    /// Why the stream ended. Reported only after all packets that arrived before the end have been
    /// taken.
    end: Option<ConnectionError>,
    /// Number of bytes read since [`take_bytes_read`](Self::take_bytes_read).
    bytes_read: usize,
    /// Bytes to write.
    unsent: BytesMut,
    /// Bytes were written to the stream and must still be flushed, for TLS.
    unflushed: bool,
    /// DISCONNECT is in `unsent`.
    disconnecting: bool,
    pub(super) keep_alive: KeepAlive,
}

impl Connection {
    /// Creates a connection. `connect`: the bytes of CONNECT.
    pub(super) fn new(
        stream: Box<dyn Stream>,
        connect: BytesMut,
        packet_bytes_max: u32,
        now: Instant,
    ) -> Self {
        let packet_bytes_max = usize::try_from(packet_bytes_max).unwrap_or(usize::MAX);
        Self {
            stream,
            input: Input::new(packet_bytes_max),
            end: None,
            bytes_read: 0,
            unsent: connect,
            unflushed: false,
            disconnecting: false,
            keep_alive: KeepAlive::new(now),
        }
    }

    /// Reads until the stream has no more data, or the buffer is full. Ready when data has arrived;
    /// ready with an error when the stream has ended. Call it only after all packets have been
    /// taken.
    ///
    /// Several reads may be needed: TLS returns one record at a time, and brokers write a record
    /// for each message. If a read returns fewer bytes than requested, the read after it costs no
    /// system call.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let mut buffer = ReadBuf::new(self.input.space());
        let mut end = self.end.take();
        while end.is_none() && buffer.remaining() > 0 {
            let before = buffer.filled().len();
            end = match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().len() > before => None,
                Poll::Ready(Ok(())) => Some(ConnectionError::Closed),
                Poll::Ready(Err(error)) => Some(broken(error)),
                Poll::Pending => break,
            };
        }
        let bytes = buffer.filled().len();
        if bytes == 0 {
            return end.map_or(Poll::Pending, |end| Poll::Ready(Err(end)));
        }
        self.end = end;
        self.input.advance(bytes);
        self.bytes_read += bytes;
        Poll::Ready(Ok(()))
    }

    /// Writes what the stream accepts; ready when all bytes are written and flushed, or with the
    /// error that ended the stream.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        while !self.unsent.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.unsent);
            let bytes = ready!(written).map_err(broken)?;
            if bytes == 0 {
                return Poll::Ready(Err(ConnectionError::Closed));
            }
            self.unsent.advance(bytes);
            self.unflushed = true;
            self.keep_alive.written(Instant::now());
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx)).map_err(broken)?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the number of bytes read since the last call.
    pub(super) fn take_bytes_read(&mut self) -> usize {
        std::mem::take(&mut self.bytes_read)
    }

    /// Returns the next complete packet.
    pub(super) fn packet(&mut self) -> Result<Option<Packet<'_>>, ConnectionError> {
        Ok(self.input.packet()?)
    }

    /// Returns the write buffer, to which the caller appends packets.
    pub(super) fn output(&mut self, now: Instant) -> &mut BytesMut {
        if !self.has_unsent() {
            self.keep_alive.waiting(now);
        }
        &mut self.unsent
    }

    /// Queues `refusals`, the packets that refuse messages at QoS 2. Fails if the write buffer has
    /// no space for them. The connection then ends, and the broker redelivers the messages on the
    /// next connection. If a refusal were dropped instead, its message would occupy a place in the
    /// broker's window forever.
    pub(super) fn refuse(&mut self, refusals: &[u8], now: Instant) -> Result<(), ConnectionError> {
        if !refusals.is_empty() {
            if !self.has_write_space() {
                return Err(ConnectionError::RefusalBufferFull);
            }
            self.output(now).extend_from_slice(refusals);
        }
        Ok(())
    }

    /// Queues DISCONNECT after all unsent bytes.
    pub(super) fn disconnect(&mut self, end_session: bool, now: Instant) {
        codec::put_disconnect(end_session, self.output(now));
        self.disconnecting = true;
    }

    /// Returns whether DISCONNECT has been written since the last call.
    pub(super) fn take_disconnect_sent(&mut self) -> bool {
        let sent = self.disconnecting && !self.has_unsent();
        self.disconnecting &= !sent;
        sent
    }

    /// Returns whether the write buffer accepts another packet.
    pub(super) fn has_write_space(&self) -> bool {
        self.unsent.len() < UNSENT_BYTES_MAX
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unflushed || !self.unsent.is_empty()
    }

    /// Returns when to call [`check_keep_alive`](Self::check_keep_alive) at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.keep_alive.next(self.has_unsent()).map(|(at, _)| at)
    }

    /// Sends a ping if one is due, and ends a connection that hangs.
    pub(super) fn check_keep_alive(&mut self, now: Instant) -> Result<(), ConnectionError> {
        let due = self.keep_alive.next(self.has_unsent()).filter(|(at, _)| *at <= now);
        match due.map(|(_, due)| due) {
            None => Ok(()),
            Some(Due::Ping) => {
                codec::put_ping(self.output(now))?;
                self.keep_alive.pinged(now);
                Ok(())
            }
            Some(Due::Silent) => Err(ConnectionError::Silent(now - self.keep_alive.received_at)),
            Some(Due::Blocked) => {
                Err(ConnectionError::Blocked(now - self.keep_alive.waiting_since))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};

    use super::*;

    const KEEP_ALIVE: Duration = Duration::from_secs(8);
    const PACKET_BYTES_MAX: u32 = 1_024;

    /// Opens a connection whose socket holds `socket_bytes`. Returns also the broker's end.
    fn open(socket_bytes: usize, now: Instant) -> (Connection, DuplexStream) {
        let (stream, broker) = duplex(socket_bytes);
        let mut connection =
            Connection::new(Box::new(stream), BytesMut::new(), PACKET_BYTES_MAX, now);
        connection.keep_alive.start(KEEP_ALIVE);
        (connection, broker)
    }

    /// A stream that returns one record per poll, as TLS does, and then ends.
    struct Records(VecDeque<&'static [u8]>);

    impl AsyncRead for Records {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.0.pop_front().into_iter().for_each(|record| buffer.put_slice(record));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Records {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn read_returns_all_records_before_the_end() {
        // A CONNACK in two records, then a PINGRESP.
        let records: [&[u8]; 3] = [&[0x20, 3, 0], &[0, 0], &[0xD0, 0]];
        let stream = Box::new(Records(records.into()));
        let mut connection =
            Connection::new(stream, BytesMut::new(), PACKET_BYTES_MAX, Instant::now());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(connection.poll_read(&mut cx), Poll::Ready(Ok(()))));
        assert_eq!(connection.take_bytes_read(), 7);
        assert!(matches!(connection.packet(), Ok(Some(Packet::Connected(_)))));
        assert!(matches!(connection.packet(), Ok(Some(Packet::Pong))));
        assert!(matches!(connection.packet(), Ok(None)));
        assert!(matches!(connection.poll_read(&mut cx), Poll::Ready(Err(ConnectionError::Closed))));
    }

    fn write(connection: &mut Connection) -> Poll<Result<(), ConnectionError>> {
        connection.poll_write(&mut Context::from_waker(Waker::noop()))
    }

    /// Advances time as the event loop does, for this many seconds. Returns the seconds at which a
    /// ping was sent, and the error that ended the connection.
    fn run_for(
        connection: &mut Connection,
        began: Instant,
        seconds: u64,
    ) -> (Vec<u64>, Option<ConnectionError>) {
        let mut pings = Vec::new();
        for second in 0..seconds {
            let now = began + Duration::from_secs(second);
            assert!(
                connection.deadline().is_some_and(|at| at > began),
                "the deadline must not stay in the past"
            );
            if let Err(error) = connection.check_keep_alive(now) {
                return (pings, Some(error));
            }
            if connection.has_unsent() && write(connection).is_ready() {
                connection.keep_alive.written(now);
                pings.push(second);
            }
        }
        (pings, None)
    }

    #[test]
    fn idle_connection_is_pinged_and_closed_after_two_keep_alives() {
        let began = Instant::now();
        let (mut connection, _broker) = open(1_000, began);
        let (pings, end) = run_for(&mut connection, began, 60);
        assert_eq!(pings, [6, 12]);
        assert!(
            matches!(end, Some(ConnectionError::Silent(after)) if after == 2 * KEEP_ALIVE),
            "{end:?}"
        );
    }

    #[test]
    fn pingresp_keeps_the_connection_alive() {
        let began = Instant::now();
        let (mut connection, _broker) = open(1_000, began);
        for round in 1..9 {
            let now = began + round * KEEP_ALIVE;
            connection.check_keep_alive(now).unwrap();
            assert!(write(&mut connection).is_ready());
            connection.keep_alive.received(now);
        }
    }

    #[test]
    fn write_buffer_is_bounded_if_the_broker_reads_nothing() {
        let began = Instant::now();
        let (mut connection, _broker) = open(100, began);
        for packet_id in 1..=u16::MAX {
            if connection.has_write_space() {
                codec::put_ack(packet_id, connection.output(began));
            }
        }
        assert_eq!(connection.unsent.len(), UNSENT_BYTES_MAX);
        assert!(matches!(
            connection.refuse(&[0; 5], began),
            Err(ConnectionError::RefusalBufferFull)
        ));
        assert!(
            connection.refuse(&[], began).is_ok(),
            "without refusals, the connection must stay open"
        );
        assert!(write(&mut connection).is_pending(), "the socket must be full");
        assert_eq!(connection.unsent.len(), UNSENT_BYTES_MAX - 100);
        // The broker still sends, so the connection ends only because the broker does not read.
        connection.keep_alive.received(began + 2 * KEEP_ALIVE);
        let (pings, end) = run_for(&mut connection, began, 60);
        assert!(pings.is_empty(), "pings would queue behind the unsent bytes");
        assert!(matches!(end, Some(ConnectionError::Blocked(_))), "{end:?}");
    }

    #[test]
    fn disconnect_is_sent_after_all_queued_packets() {
        let began = Instant::now();
        let (mut connection, mut broker) = open(4, began);
        codec::put_ack(7, connection.output(began));
        connection.disconnect(false, began);
        assert!(write(&mut connection).is_pending());
        assert!(!connection.take_disconnect_sent());
        let mut bytes = [0; 8];
        let mut buffer = ReadBuf::new(&mut bytes);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut broker).poll_read(&mut cx, &mut buffer).is_ready());
        assert!(write(&mut connection).is_ready());
        assert!(connection.take_disconnect_sent());
        assert!(!connection.take_disconnect_sent(), "DISCONNECT must be reported only once");
        assert!(Pin::new(&mut broker).poll_read(&mut cx, &mut buffer).is_ready());
        assert_eq!(buffer.filled(), [0x40, 2, 0, 7, 0xE0, 0]);
    }
}
