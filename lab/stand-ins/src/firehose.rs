//! A stand-in for the broker that sends as fast as the consumer reads, or at a rate that no broker
//! reaches, so that the consumer is the bottleneck.
//!
//! The firehose speaks MQTT 5 at QoS 0. Each member of the share group gets the same number of
//! messages, and no message is sent twice. The sent fixes are known exactly: message `k` is fix
//! [`FIRST_SEQ`] + `k / drivers` of driver `k % drivers`. The firehose is not a complete broker: it
//! accepts no messages and matches no topics.

mod segment;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lab_mqtt::{Packet, first_packet, kind, packet_id, put_packet, read_subscribe};
use lab_stack::lock;

pub use self::segment::FIRST_SEQ;
use self::segment::{MESSAGES, Segments};

const READ_BYTES: usize = 64 * 1024;
/// Interval at which an idle writer checks for messages.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of messages that a member may be ahead of the slowest member; then the member
/// waits.
const AHEAD_MAX: u64 = 4 * 1024;
/// Offset of the protocol version in the body of a CONNECT, and the version of MQTT 5 (3.1.2.2).
const VERSION_OFFSET: usize = 6;
const VERSION: u8 = 5;

/// A running firehose; its threads end with their connections.
#[derive(Debug)]
pub struct Firehose {
    /// Port of the listener on the loopback.
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    drivers: u32,
    distributor: Mutex<Distributor>,
    sent: AtomicU64,
    faults: Mutex<Vec<String>>,
}

/// Distributes the messages among the members.
#[derive(Debug, Default)]
struct Distributor {
    /// Number of the next message.
    next: u64,
    is_open: bool,
    /// Start of the load, and its messages per second; `None`: as fast as the members read.
    pace: Option<(Instant, u32)>,
    /// Number of messages assigned to each subscribed member.
    assigned: BTreeMap<usize, u64>,
    /// Number of connections so far, which is the number of the latest member.
    members: usize,
}

impl Distributor {
    /// Assigns the next [`MESSAGES`] messages to a member, and returns the number of the first
    /// message. `None`: the firehose is closed, the member is too far ahead, or the pace allows no
    /// more now.
    fn assign(&mut self, member: usize) -> Option<u64> {
        let slowest = *self.assigned.values().min()?;
        let assigned = self.assigned.get_mut(&member)?;
        if !self.is_open || *assigned >= slowest + AHEAD_MAX {
            return None;
        }
        if let Some((began, rate)) = self.pace
            && (self.next + MESSAGES) as f64 > began.elapsed().as_secs_f64() * f64::from(rate)
        {
            return None;
        }
        *assigned += MESSAGES;
        self.next += MESSAGES;
        Some(self.next - MESSAGES)
    }
}

/// State shared by the two threads of a connection.
#[derive(Debug, Default)]
struct Link {
    /// Packets to send before the next messages.
    control: Vec<u8>,
    is_closed: bool,
}

impl Firehose {
    /// Listens on a free port. Nothing is sent before [`open`](Self::open).
    pub fn start(drivers: u32) -> Result<Self> {
        let shared = Arc::new(Shared {
            drivers,
            distributor: Mutex::default(),
            sent: AtomicU64::new(0),
            faults: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let port = listener.local_addr()?.port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.serve(stream));
            }
        });
        Ok(Self { port, shared })
    }

    /// Starts sending, as fast as the members read.
    pub fn open(&self) {
        lock(&self.shared.distributor).is_open = true;
    }

    /// Starts sending, at most this many messages per second over all members.
    pub fn open_at(&self, rate: u32) {
        lock(&self.shared.distributor).pace = Some((Instant::now(), rate));
        self.open();
    }

    /// Assigns no more messages. Messages that were already assigned are still sent.
    pub fn close(&self) {
        lock(&self.shared.distributor).is_open = false;
    }

    /// Returns the number of members.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        lock(&self.shared.distributor).assigned.len()
    }

    /// Returns the number of messages written so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of messages assigned so far. Once all are written, their numbers begin at
    /// 0 and have no gap.
    #[must_use]
    pub fn assigned(&self) -> u64 {
        lock(&self.shared.distributor).next
    }

    /// Returns the faults of members: closing while messages were being sent, or sending bytes that
    /// are not MQTT.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        lock(&self.shared.faults).clone()
    }

    /// Returns the number of fixes sent by each driver. All assigned messages must have been
    /// written.
    #[must_use]
    pub fn sent_by_driver(&self) -> Vec<u32> {
        let (assigned, drivers) = (self.assigned(), u64::from(self.shared.drivers));
        // Driver `n` has the messages `n`, `n + drivers`, `n + 2 * drivers`, ….
        let fixes =
            |n: u64| u32::try_from((assigned + drivers - 1 - n) / drivers).unwrap_or(u32::MAX);
        (0..drivers).map(fixes).collect()
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let member = {
            let mut distributor = lock(&self.distributor);
            distributor.members += 1;
            distributor.members
        };
        let ended = self.serve_member(member, stream);
        lock(&self.distributor).assigned.remove(&member);
        if let Err(error) = ended {
            lock(&self.faults).push(format!("member {member}: {error:#}"));
        }
    }

    fn serve_member(&self, member: usize, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let (link, mut writer) = (Mutex::default(), stream.try_clone()?);
        thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let written = self.write_all(member, &link, &mut writer);
                let _ = writer.shutdown(Shutdown::Both);
                written
            });
            let read = self.read_all(member, &link, stream);
            lock(&link).is_closed = true;
            let written = writing.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?;
            read.and(written)
        })
    }

    /// Handles the member's packets until the member disconnects.
    fn read_all(&self, member: usize, link: &Mutex<Link>, mut stream: TcpStream) -> Result<()> {
        let (mut input, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
        loop {
            let mut at = 0;
            while let Some(packet) = first_packet(&input[at..])? {
                at += packet.len;
                if !self.handle_packet(member, link, packet)? {
                    return Ok(());
                }
            }
            input.drain(..at);
            // A killed member resets its connection. That is a regular end, not a fault.
            let read = stream.read(&mut buffer).unwrap_or(0);
            if read == 0 {
                return Ok(());
            }
            input.extend_from_slice(&buffer[..read]);
        }
    }

    /// Handles a packet. Returns `false` if the member disconnects.
    fn handle_packet(&self, member: usize, link: &Mutex<Link>, packet: Packet<'_>) -> Result<bool> {
        let mut link = lock(link);
        match packet.kind {
            kind::CONNECT => {
                ensure!(
                    packet.body.get(VERSION_OFFSET) == Some(&VERSION),
                    "the firehose supports only MQTT 5"
                );
                // Session present: no; reason: success; no properties.
                put_packet(kind::CONNACK, 0, &[0, 0, 0], &mut link.control);
            }
            kind::SUBSCRIBE => {
                let (packet_id, filters) = read_subscribe(packet.body)?;
                put_packet(
                    kind::SUBACK,
                    0,
                    &ack_body(packet_id, &vec![0; filters.len()]),
                    &mut link.control,
                );
                // A client that subscribes to `$SYS/brokers`, as milepost's preflight does, gets no
                // fixes.
                if filters.iter().any(|filter| !filter.starts_with(b"$SYS/")) {
                    let mut distributor = lock(&self.distributor);
                    let slowest = distributor.assigned.values().min().copied().unwrap_or(0);
                    distributor.assigned.insert(member, slowest);
                }
            }
            kind::UNSUBSCRIBE => {
                let answer = ack_body(packet_id(packet.body)?, &[0]);
                put_packet(kind::UNSUBACK, 0, &answer, &mut link.control);
                lock(&self.distributor).assigned.remove(&member);
            }
            kind::PINGREQ => put_packet(kind::PINGRESP, 0, &[], &mut link.control),
            kind::DISCONNECT => return Ok(false),
            kind => bail!("the firehose does not support packets of type {kind}"),
        }
        Ok(true)
    }

    /// Writes control packets and messages until the link is closed.
    fn write_all(&self, member: usize, link: &Mutex<Link>, stream: &mut TcpStream) -> Result<()> {
        let mut segments = None;
        loop {
            // Keep the lock while messages are assigned, so that the SUBACK is sent before the
            // messages.
            let mut link = lock(link);
            if !link.control.is_empty() {
                let control = std::mem::take(&mut link.control);
                drop(link);
                stream.write_all(&control)?;
                continue;
            }
            if link.is_closed {
                return Ok(());
            }
            let assigned = lock(&self.distributor).assign(member);
            drop(link);
            let Some(first) = assigned else {
                thread::sleep(POLL_INTERVAL);
                continue;
            };
            let segments = segments.get_or_insert_with(Segments::new);
            stream.write_all(segments.fill(self.drivers, first)).context("the member is gone")?;
            self.sent.fetch_add(MESSAGES, Ordering::Relaxed);
        }
    }
}

/// Returns the body of a SUBACK or UNSUBACK without properties.
fn ack_body(packet_id: u16, codes: &[u8]) -> Vec<u8> {
    [&packet_id.to_be_bytes(), &[0][..], codes].concat()
}
