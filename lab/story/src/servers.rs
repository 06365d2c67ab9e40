//! Fresh servers for one step, and the queries to them.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_harness::scripted_clickhouse::ScriptedClickHouse;
use lab_mqtt::{Publish, first_packet, kind, put_connect, put_publish, put_subscribe};
use lab_stack::procfs::usage_of_tree;
use lab_stack::{Broker, ClickHouse};
use lab_stand_ins::firehose::{self, Firehose};
use lab_stand_ins::sink::Sink;

use crate::plan::{Destination, HostileMessage, Step, Through};

/// Maximum number of sessions of a consumer.
const SESSIONS_MAX: u32 = 64;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The servers on both sides of a consumer.
pub(crate) struct Servers {
    broker: Option<Broker>,
    pub(crate) firehose: Option<Firehose>,
    pub(crate) engine: Option<ClickHouse>,
    /// Proxy in front of the engine. It measures the inserts, and keeps running while the engine is
    /// down.
    pub(crate) proxy: Option<ScriptedClickHouse>,
    pub(crate) sink: Option<Sink>,
    /// Address of the broker, `host:port`.
    pub(crate) mqtt: String,
    pub(crate) clickhouse_url: String,
}

impl Servers {
    /// Starts the servers. `broker`: `host:port` of a broker that runs already.
    pub(crate) fn start(step: &Step, broker: Option<&str>, folder: &Path) -> Result<Self> {
        let (mut own_broker, mut firehose, mut first_seq) = (None, None, 1);
        let mqtt = match (step.through, broker) {
            (Through::Firehose, _) => {
                let started = Firehose::start(step.drivers)?;
                let address = format!("127.0.0.1:{}", started.port);
                (firehose, first_seq) = (Some(started), firehose::FIRST_SEQ);
                address
            }
            (Through::Broker, Some(address)) => address.to_owned(),
            (Through::Broker, None) => {
                let started = Broker::start(folder)?;
                let address = format!("127.0.0.1:{}", started.port);
                own_broker = Some(started);
                address
            }
        };
        let (mut engine, mut proxy, mut sink) = (None, None, None);
        let clickhouse_url = match step.into {
            Destination::ClickHouse => {
                let started = ClickHouse::start(folder)?;
                let front = ScriptedClickHouse::start(&[started.url()])?;
                let url = front.url();
                (engine, proxy) = (Some(started), Some(front));
                url
            }
            Destination::Sink => {
                let started = Sink::start(step.drivers, first_seq)?;
                let url = started.url();
                sink = Some(started);
                url
            }
        };
        Ok(Self { broker: own_broker, firehose, engine, proxy, sink, mqtt, clickhouse_url })
    }

    /// Returns the durations of all inserts so far, as the proxy or the sink measured them.
    pub(crate) fn insert_durations(&self) -> Vec<Duration> {
        match (&self.proxy, &self.sink) {
            (Some(proxy), _) => proxy.insert_durations(),
            (_, Some(sink)) => sink.insert_durations(),
            _ => Vec::new(),
        }
    }

    /// Returns the broker's CPU time so far. `None` for a broker that the laboratory did not start.
    pub(crate) fn broker_cpu_seconds(&self) -> Option<f64> {
        Some(usage_of_tree(self.broker.as_ref()?.process().pid()).ok()?.cpu.as_secs_f64())
    }

    /// Returns the number of messages that Mosquitto dropped, by its own counter.
    pub(crate) fn broker_dropped(&self) -> Option<u64> {
        self.broker.as_ref()?;
        let mut out = Vec::new();
        put_connect("story-count", None, 0, &mut out);
        put_subscribe(1, "$SYS/broker/publish/messages/dropped", 0, &mut out);
        let mut stream = self.connect().ok()?;
        stream.write_all(&out).ok()?;
        let mut input = Vec::new();
        let count = read_until(&mut stream, &mut input, kind::PUBLISH).ok()?;
        std::str::from_utf8(&count).ok()?.parse().ok()
    }

    /// Publishes each message `times` times at QoS 1. Returns when the broker has acknowledged all
    /// messages.
    pub(crate) fn publish_hostile(&self, messages: &[HostileMessage], times: u32) -> Result<()> {
        for _ in 0..times {
            // Use one connection per message, because a broker may close the connection on which it
            // rejects a message.
            for message in messages {
                let mut out = Vec::new();
                put_connect("story-hostile", None, 0, &mut out);
                let payload = message.payload.repeat(message.repeated);
                put_publish(&message.topic, Some(1), payload.as_bytes(), &mut out);
                let mut stream = self.connect()?;
                stream.write_all(&out)?;
                read_until(&mut stream, &mut Vec::new(), kind::PUBACK)?;
            }
        }
        Ok(())
    }

    /// Ends the sessions of a consumer at a broker that the laboratory did not start. A session
    /// without a connection keeps its share of the group's messages, so the next consumer would
    /// miss these messages.
    pub(crate) fn end_sessions(&self, names: &[String]) -> Result<()> {
        if self.broker.is_some() || self.firehose.is_some() {
            return Ok(());
        }
        for name in names {
            let ids = 0..if name.contains("{n}") { SESSIONS_MAX } else { 1 };
            for id in ids.map(|n| name.replace("{n}", &n.to_string())) {
                let mut out = Vec::new();
                put_connect(&id, None, 0, &mut out);
                let mut stream = self.connect()?;
                stream.write_all(&out)?;
                read_until(&mut stream, &mut Vec::new(), kind::CONNACK)?;
            }
        }
        Ok(())
    }

    fn connect(&self) -> Result<TcpStream> {
        let address =
            self.mqtt.to_socket_addrs()?.next().context("the broker's host has no address")?;
        let stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(stream)
    }
}

/// Reads packets until a packet of this kind arrives. Returns the payload of a PUBLISH, and nothing
/// for other kinds.
fn read_until(stream: &mut TcpStream, input: &mut Vec<u8>, kind: u8) -> Result<Vec<u8>> {
    let (began, mut buffer) = (Instant::now(), [0; 4096]);
    while began.elapsed() < ANSWER_WITHIN {
        while let Some(packet) = first_packet(input)? {
            if packet.kind == kind {
                return if kind == kind::PUBLISH {
                    Ok(Publish::read(packet)?.payload.to_vec())
                } else {
                    Ok(Vec::new())
                };
            }
            let len = packet.len;
            input.drain(..len);
        }
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the broker closed the connection");
        input.extend_from_slice(&buffer[..read]);
    }
    anyhow::bail!("the broker did not answer within {ANSWER_WITHIN:?}")
}
