//! Plays the broker, and sends as fast as the consumer takes it, so that the consumer is the
//! ceiling.
//!
//! MQTT 5, QoS 0 and 1. Members of any share group get the same number of messages each. A member never has
//! more unacknowledged than its Receive Maximum, and nothing is sent twice. What was sent is known exactly: message
//! `k` is fix [`FIRST_SEQ`] + `k / drivers` of driver `k % drivers`. Not a broker otherwise: it takes no messages, and
//! matches no topics.

mod dealer;
mod link;
mod segment;

use std::io::Write as _;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use lab_mqtt::{Packet, first_packet, kind, packet_id, put_packet, read_connect, read_subscribe};
use lab_stack::lock;

pub use self::dealer::Plan;
use self::dealer::{Block, Dealer};
use self::link::{Input, Link};
pub use self::segment::FIRST_SEQ;
use self::segment::{DRIVERS_MAX, Segments};

/// A running firehose; its threads end with their connections.
#[derive(Debug)]
pub struct Firehose {
    /// Where it listens on the loopback.
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    plan: Plan,
    dealer: Mutex<Dealer>,
    sent: AtomicU64,
    acked: AtomicU64,
    faults: Mutex<Vec<String>>,
}

impl Firehose {
    /// Listens; port 0 is a free one. Nothing is sent before [`open`](Self::open).
    pub fn start(port: u16, plan: Plan) -> Result<Self> {
        ensure!((1..=DRIVERS_MAX).contains(&plan.drivers), "1 to {DRIVERS_MAX} drivers");
        let shared = Arc::new(Shared {
            plan,
            dealer: Mutex::default(),
            sent: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            faults: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("cannot listen on port {port}"))?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        Ok(Self { port, shared })
    }

    pub fn open(&self) {
        let mut dealer = lock(&self.shared.dealer);
        dealer.open = Some((Instant::now(), dealer.next));
    }

    /// Sends no more than what is under way.
    pub fn close(&self) {
        lock(&self.shared.dealer).open = None;
    }

    #[must_use]
    pub fn subscribers(&self) -> usize {
        lock(&self.shared.dealer).given.len()
    }

    #[must_use]
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Messages dealt so far; once all are written, these are the first of the numbering, without a gap.
    #[must_use]
    pub fn dealt(&self) -> u64 {
        lock(&self.shared.dealer).next
    }

    /// Messages acknowledged so far, each once.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.shared.acked.load(Ordering::Relaxed)
    }

    /// What members did wrong: left with messages on the way, acknowledged what was not theirs, spoke no MQTT.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        lock(&self.shared.faults).clone()
    }

    /// How many fixes each driver has sent, if all that was dealt is written.
    #[must_use]
    pub fn sent_by_driver(&self) -> Vec<u32> {
        let (dealt, drivers) = (self.dealt(), u64::from(self.shared.plan.drivers));
        let of = |n: u64| u32::try_from((dealt + drivers - 1 - n) / drivers).unwrap_or(u32::MAX);
        (0..drivers).map(of).collect()
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let member = {
            let mut dealer = lock(&self.dealer);
            dealer.members += 1;
            dealer.members
        };
        let ended = self.serve_member(member, stream);
        lock(&self.dealer).given.remove(&member);
        if let Err(error) = ended {
            lock(&self.faults).push(format!("member {member}: {error:#}"));
        }
    }

    fn serve_member(&self, member: usize, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut input = Input::default();
        let receive_maximum = loop {
            if let Some(packet) = first_packet(&input.bytes)? {
                ensure!(packet.kind == kind::CONNECT, "a connection begins with CONNECT");
                let (receive_maximum, len) = (read_connect(packet.body)?, packet.len);
                input.bytes.drain(..len);
                break receive_maximum;
            }
            if !input.read(&mut stream)? {
                return Ok(()); // a port check
            }
        };
        // Session present: no; reason: success; no properties.
        let link = Link::new(receive_maximum);
        put_packet(kind::CONNACK, 0, &[0, 0, 0], &mut lock(&link.state).control);
        let mut writer = stream.try_clone()?;
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let written = self.write_all(member, &link, &mut writer);
                let _ = writer.shutdown(Shutdown::Both);
                written
            });
            let read = self.read_all(member, &link, stream, input);
            link.close();
            let written = writing.join().map_err(|_| anyhow::anyhow!("a writer died"))?;
            read.and(written)
        })
    }

    fn read_all(&self, member: usize, link: &Link, mut stream: TcpStream, mut input: Input) -> Result<()> {
        let mut acks = Vec::new();
        loop {
            let mut at = 0;
            while let Some(packet) = first_packet(&input.bytes[at..])? {
                at += packet.len;
                if packet.kind == kind::PUBACK {
                    acks.push(packet_id(packet.body)?);
                } else if !self.take(member, link, packet)? {
                    return Ok(());
                }
            }
            input.bytes.drain(..at);
            self.acked.fetch_add(acks.len() as u64, Ordering::Relaxed);
            link.acknowledged(acks.drain(..))?;
            if !input.read(&mut stream)? {
                return Ok(());
            }
        }
    }

    /// `false`: the member leaves.
    fn take(&self, member: usize, link: &Link, packet: Packet<'_>) -> Result<bool> {
        let mut state = lock(&link.state);
        match packet.kind {
            kind::SUBSCRIBE => {
                let (packet_id, wanted) = read_subscribe(packet.body)?;
                let granted: Vec<u8> = wanted.into_iter().map(|qos| qos.min(self.plan.qos)).collect();
                state.qos = granted.iter().max().copied();
                let answer = with_properties(packet_id, &granted);
                put_packet(kind::SUBACK, 0, &answer, &mut state.control);
                let mut dealer = lock(&self.dealer);
                let slowest = dealer.given.values().min().copied().unwrap_or(0);
                dealer.given.insert(member, slowest);
            }
            kind::UNSUBSCRIBE => {
                let answer = with_properties(packet_id(packet.body)?, &[0]);
                state.qos = None;
                put_packet(kind::UNSUBACK, 0, &answer, &mut state.control);
                lock(&self.dealer).given.remove(&member);
            }
            kind::PINGREQ => put_packet(kind::PINGRESP, 0, &[], &mut state.control),
            kind::DISCONNECT => return Ok(false),
            kind => bail!("a packet of type {kind} is not for a firehose"),
        }
        drop(state);
        link.changed.notify_all();
        Ok(true)
    }

    fn write_all(&self, member: usize, link: &Link, stream: &mut TcpStream) -> Result<()> {
        let mut segments = Segments::default();
        let (mut block, mut ids) = (Block { first: 0, len: 0 }, Vec::new());
        loop {
            let mut state = lock(&link.state);
            if !state.control.is_empty() {
                let control = std::mem::take(&mut state.control);
                drop(state);
                stream.write_all(&control)?;
                continue;
            }
            if state.closed {
                ensure!(block.len == 0, "left with {} messages dealt and not sent", block.len);
                return Ok(());
            }
            let Some(qos) = state.qos else {
                link.wait(state);
                continue;
            };
            if block.len == 0 {
                let dealt = lock(&self.dealer).deal(member, &self.plan);
                let Some(dealt) = dealt else {
                    link.wait(state);
                    continue;
                };
                block = dealt;
            }
            ids.clear();
            let len = if qos == 0 { block.len } else { state.take_ids(block.len, &mut ids) };
            if len == 0 {
                link.wait(state);
                continue;
            }
            drop(state);
            let bytes = segments.fill(self.plan.drivers, block.first..block.first + len, &ids);
            stream.write_all(bytes).context("the member is gone")?;
            self.sent.fetch_add(len, Ordering::Relaxed);
            block = Block { first: block.first + len, len: block.len - len };
        }
    }
}

/// The body of a SUBACK or UNSUBACK: MQTT 5 has properties between the id and the codes.
fn with_properties(packet_id: u16, codes: &[u8]) -> Vec<u8> {
    [&packet_id.to_be_bytes(), &[0][..], codes].concat()
}
