//! A client's socket, with its input and output buffers.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use rumqttc::v5::mqttbytes::v5::Packet;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::hub::Hub;
use crate::packet::{self, Fault, PACKET_BYTES_MAX};
use crate::router::ClientId;
use crate::session::Link;

/// Largest read, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// Longest time to write the last packets to a client.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for a client to close its end afterwards.
const LINGER: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    input: BytesMut,
    pub(crate) out: BytesMut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Read,
    Wrote,
    /// The session has signalled.
    Woken,
    /// The deadline has passed.
    Due,
    /// The client has closed the connection, or the connection failed.
    Gone,
}

/// Outcome of [`Socket::wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Elapsed,
    /// The client has left, or another connection owns the session.
    Aborted,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Without TCP_NODELAY, the kernel holds back small answers until the client has
        // acknowledged earlier answers. A socket that refuses the option is about to fail anyway.
        let _ = stream.set_nodelay(true);
        Self { stream, input: BytesMut::with_capacity(READ_BYTES), out: BytesMut::new() }
    }

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn event(
        &mut self,
        link: Option<&Link>,
        reads: bool,
        until: Option<Instant>,
    ) -> Event {
        if self.input.capacity() - self.input.len() < READ_BYTES / 4 {
            self.input.reserve(READ_BYTES);
        }
        let (mut reader, mut writer) = self.stream.split();
        tokio::select! {
            read = reader.read_buf(&mut self.input), if reads => match read {
                Ok(0) | Err(_) => Event::Gone,
                Ok(_) => Event::Read,
            },
            written = writer.write(&self.out), if !self.out.is_empty() => match written {
                Ok(count) => {
                    self.out.advance(count);
                    Event::Wrote
                }
                Err(_) => Event::Gone,
            },
            () = wait_for_wake(link) => Event::Woken,
            () = sleep_until(until) => Event::Due,
        }
    }

    /// Returns the next packet; `None`: no packet is complete.
    pub(crate) fn packet(&mut self) -> Result<Option<Packet>, Fault> {
        packet::read(&mut self.input)
    }

    /// Waits until the deadline; without a deadline, until the client leaves. Meanwhile the
    /// session's process continues, and packets from the client are kept.
    pub(crate) async fn wait(
        &mut self,
        hub: &Hub,
        client: &ClientId,
        link: &Rc<Link>,
        until: Option<Instant>,
    ) -> WaitOutcome {
        loop {
            let due = hub.broker.borrow_mut().advance(client, link, Instant::now());
            let reads = self.input.len() < PACKET_BYTES_MAX as usize;
            let first = [until, due].into_iter().flatten().min();
            if self.event(Some(link), reads, first).await == Event::Gone
                || link.ending.get().is_some()
            {
                return WaitOutcome::Aborted;
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return WaitOutcome::Elapsed;
            }
        }
    }

    /// Sends the last packets, and closes the connection so that the client can still read them.
    pub(crate) async fn close(mut self) {
        let sent = timeout(CLOSE_TIMEOUT, self.stream.write_all(&self.out)).await;
        if let Ok(Ok(())) = sent
            && self.stream.shutdown().await.is_ok()
        {
            // Read until the client closes: closing with unread bytes sends a reset, which
            // discards the packets that the client has not read.
            let drain = async {
                self.input.clear();
                while let Ok(1..) = self.stream.read_buf(&mut self.input).await {
                    self.input.clear();
                }
            };
            let _ = timeout(LINGER, drain).await;
        }
    }
}

async fn wait_for_wake(link: Option<&Link>) {
    match link {
        Some(link) => link.wake.notified().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}
