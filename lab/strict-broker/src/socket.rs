//! A client's socket, and the bytes on both sides of it.

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

/// A read takes at most so much.
const READ_BYTES: usize = 16 * 1024;
/// A client that reads has our last words by then.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// It takes us for gone by then.
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
    /// The session has something for us.
    Woken,
    Due,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    Over,
    /// The client has left, or another connection has the session.
    InVain,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Without it small answers wait for each other; a socket that refuses is about to fail
        // anyhow.
        let _ = stream.set_nodelay(true);
        Self { stream, input: BytesMut::with_capacity(READ_BYTES), out: BytesMut::new() }
    }

    /// Waits for what comes first. Nothing is lost when it is not waited for to the end.
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
            () = woken(link) => Event::Woken,
            () = reached(until) => Event::Due,
        }
    }

    /// The next packet that is here as a whole.
    pub(crate) fn packet(&mut self) -> Result<Option<Packet>, Fault> {
        packet::read(&mut self.input)
    }

    /// Waits while the client has to; without an end, until it leaves. What it sends meanwhile is
    /// kept.
    pub(crate) async fn wait(
        &mut self,
        hub: &Hub,
        client: &ClientId,
        link: &Rc<Link>,
        until: Option<Instant>,
    ) -> Waited {
        loop {
            let due = hub.broker.borrow_mut().work(client, link, Instant::now());
            let reads = self.input.len() < PACKET_BYTES_MAX as usize;
            let first = [until, due].into_iter().flatten().min();
            if self.event(Some(link), reads, first).await == Event::Gone
                || link.ending.get().is_some()
            {
                return Waited::InVain;
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Waited::Over;
            }
        }
    }

    /// Sends what is left, and closes so that the client reads it.
    pub(crate) async fn farewell(mut self) {
        let sent = timeout(LAST_WORDS, self.stream.write_all(&self.out)).await;
        if let Ok(Ok(())) = sent
            && self.stream.shutdown().await.is_ok()
        {
            // Closing with bytes unread would be a reset, which takes our last words back.
            let emptied = async {
                self.input.clear();
                while let Ok(1..) = self.stream.read_buf(&mut self.input).await {
                    self.input.clear();
                }
            };
            let _ = timeout(LINGER, emptied).await;
        }
    }
}

async fn woken(link: Option<&Link>) {
    match link {
        Some(link) => link.wake.notified().await,
        None => std::future::pending().await,
    }
}

async fn reached(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}
