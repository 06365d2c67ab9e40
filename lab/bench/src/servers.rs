//! The servers of one step, real or played.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::cases::{Case, Source, Store};
use crate::engine::Work;
use crate::kind::Kind;
use lab_harness::proxy::Proxy;
use lab_mqtt::{Publish, put_packet, put_string};
use lab_stack::Store as Tables;
use lab_stack::procfs;
use lab_stack::{Broker, ClickHouse, Settings};
use lab_stand_ins::firehose::{self, Firehose};
use lab_stand_ins::sink::Sink;
use loadgen::manifest::Manifest;
use loadgen::verify::{Verdict, verify};

/// Mosquitto publishes its counts each second.
const COUNT_WITHIN: Duration = Duration::from_secs(10);
/// `positions` parses what it is given, and keeps nothing: what parsing alone costs the server.
const NULL_TABLE: [&str; 3] = [
    "DROP TABLE fleet.last_positions_mv",
    "CREATE TABLE fleet.positions_null AS fleet.positions ENGINE = Null",
    "RENAME TABLE fleet.positions TO fleet.positions_kept, fleet.positions_null TO fleet.positions",
];

enum From {
    Mosquitto(Broker),
    Firehose(Firehose),
}

enum To {
    Engine { engine: ClickHouse, proxy: Proxy, null_table: bool },
    Sink(Sink),
}

/// Both sides of a consumer.
pub(crate) struct Servers {
    from: From,
    to: To,
    /// What the engine had done before the consumer came.
    before: Work,
}

impl Servers {
    pub(crate) fn start(case: &Case, kind: Kind, milepost: &Path, folder: &Path) -> Result<Self> {
        let (from, first) = match case.source {
            Source::Mosquitto => (From::Mosquitto(Broker::start(folder)?), 1),
            Source::Firehose => {
                let plan =
                    firehose::Plan { drivers: case.drivers, qos: case.qos, rate: case.rate.map(f64::from) };
                (From::Firehose(Firehose::start(0, plan)?), firehose::FIRST_SEQ)
            }
        };
        let to = match case.store {
            Store::Sink => To::Sink(Sink::start(0, first)?),
            Store::Engine | Store::NoMerges | Store::NullTable => {
                let engine = ClickHouse::start(folder)?;
                let proxy = Proxy::start(engine.port)?;
                let null_table = case.store == Store::NullTable;
                To::Engine { engine, proxy, null_table }
            }
        };
        let mut servers = Self { from, to, before: Work::default() };
        // The sink must look migrated to milepost, and has no tables for the others.
        if kind == Kind::Milepost {
            let url = servers.clickhouse_url();
            Settings::new(milepost, folder, servers.mqtt_port(), &url).migrate()?;
        } else if let To::Engine { engine, .. } = &servers.to {
            engine.create_tables("fleet")?;
        }
        if let To::Engine { engine, .. } = &servers.to {
            let statements: &[&str] = match case.store {
                Store::Engine | Store::Sink => &[],
                Store::NoMerges => &["SYSTEM STOP MERGES"],
                Store::NullTable => &NULL_TABLE,
            };
            for statement in statements {
                engine.query(statement)?;
            }
            servers.before = Work::of(engine)?;
        }
        Ok(servers)
    }

    pub(crate) fn mqtt_port(&self) -> u16 {
        match &self.from {
            From::Mosquitto(broker) => broker.port,
            From::Firehose(firehose) => firehose.port,
        }
    }

    /// For the consumer.
    pub(crate) fn clickhouse_url(&self) -> String {
        match &self.to {
            To::Engine { proxy, .. } => format!("http://127.0.0.1:{}", proxy.port),
            To::Sink(sink) => sink.url(),
        }
    }

    pub(crate) fn firehose(&self) -> Option<&Firehose> {
        match &self.from {
            From::Mosquitto(_) => None,
            From::Firehose(firehose) => Some(firehose),
        }
    }

    pub(crate) fn sink(&self) -> Option<&Sink> {
        match &self.to {
            To::Engine { .. } => None,
            To::Sink(sink) => Some(sink),
        }
    }

    /// Rows so far; in the engine those of the views' tables, too. Not while its CPU is measured: asking costs it some.
    pub(crate) fn stored(&self) -> u64 {
        match &self.to {
            To::Engine { engine, .. } => Work::of(engine).map_or(0, |work| work.rows - self.before.rows),
            To::Sink(sink) => sink.rows(),
        }
    }

    /// By the engine's own account, since it started.
    pub(crate) fn work(&self) -> Result<Option<Work>> {
        match &self.to {
            To::Engine { engine, .. } => Work::of(engine).map(Some),
            To::Sink(_) => Ok(None),
        }
    }

    /// The engine's CPU time for an insert into the Null table, where there is one, that has next to nothing in it.
    pub(crate) fn work_of_an_insert(&self) -> Result<Option<Duration>> {
        match &self.to {
            To::Engine { engine, null_table: true, .. } => Work::of_an_insert(engine).map(Some),
            To::Engine { .. } | To::Sink(_) => Ok(None),
        }
    }

    /// The engine's CPU time so far; 0 for the sink, which is a thread of ours.
    pub(crate) fn store_cpu(&self) -> Result<Duration> {
        match &self.to {
            To::Engine { engine, .. } => Ok(procfs::usage_of_tree(engine.pid())?.cpu),
            To::Sink(_) => Ok(Duration::ZERO),
        }
    }

    pub(crate) fn inserts_took(&self) -> Vec<Duration> {
        match &self.to {
            To::Engine { proxy, .. } => proxy.inserts_took(),
            To::Sink(sink) => sink.took(),
        }
    }

    /// Before the real engine: where an insert's answer can be kept from the consumer.
    pub(crate) fn proxy(&self) -> Option<&Proxy> {
        match &self.to {
            To::Engine { proxy, .. } => Some(proxy),
            To::Sink(_) => None,
        }
    }

    /// From now on rows of `positions` stay as they were inserted.
    pub(crate) fn stop_merges(&self) -> Result<()> {
        match &self.to {
            To::Engine { engine, .. } => engine.query("SYSTEM STOP MERGES fleet.positions").map(drop),
            To::Sink(_) => Ok(()),
        }
    }

    pub(crate) fn engine_version(&self) -> Option<String> {
        match &self.to {
            To::Engine { engine, .. } => {
                engine.query("SELECT version()").ok().map(|text| text.trim().to_owned())
            }
            To::Sink(_) => None,
        }
    }

    pub(crate) fn verify(&self, manifest: &Manifest, within: Duration) -> Result<Verdict> {
        verify(&self.tables()?, manifest, within)
    }

    /// Whom to ask what is stored.
    pub(crate) fn tables(&self) -> Result<Tables> {
        match &self.to {
            To::Engine { engine, .. } => Ok(engine.store("fleet")),
            To::Sink(_) => anyhow::bail!("a sink has no tables to verify"),
        }
    }
}

/// How many messages the broker says it took, once it says `expected` or has had the time to.
pub(crate) fn broker_received(port: u16, expected: u64) -> Result<u64> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(COUNT_WITHIN))?;
    let (mut out, mut body) = (Vec::new(), Vec::new());
    put_string("MQTT", &mut body);
    body.extend([5, 0b10, 0, 0, 0]); // version, clean start, no keep-alive, no properties
    put_string("bench-count", &mut body);
    put_packet(lab_mqtt::CONNECT, 0, &body, &mut out);
    body.clear();
    body.extend([0, 1, 0]); // packet id, no properties
    put_string("$SYS/broker/publish/messages/received", &mut body);
    body.push(0);
    put_packet(lab_mqtt::SUBSCRIBE, 0b10, &body, &mut out);
    stream.write_all(&out)?;

    let began = Instant::now();
    let (mut input, mut buffer, mut count) = (Vec::new(), [0; 4096], None);
    while count != Some(expected) && began.elapsed() < COUNT_WITHIN {
        let Ok(read) = stream.read(&mut buffer) else { break };
        ensure!(read > 0, "the broker closed the connection");
        input.extend_from_slice(&buffer[..read]);
        while let Some(packet) = lab_mqtt::first_packet(&input)? {
            if packet.kind == lab_mqtt::PUBLISH {
                count = Some(std::str::from_utf8(Publish::read(packet)?.payload)?.parse()?);
            }
            let len = packet.len;
            input.drain(..len);
        }
    }
    count.context("the broker does not say how many messages it took")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use loadgen::publish::{self, Plan, Progress};

    #[test]
    fn the_broker_counts_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        let broker = Broker::start(folder.path()).unwrap();
        let plan = Plan {
            broker: format!("127.0.0.1:{}", broker.port),
            run: "count".to_owned(),
            qos: 0,
            rate: 1000.0,
            messages: 25,
            ..Plan::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(publish::run(&plan, Arc::new(Progress::default()))).unwrap();
        assert_eq!(broker_received(broker.port, 25).unwrap(), 25);
        assert_eq!(broker_received(broker.port, 26).unwrap(), 25, "a generator that claims too much");
    }
}
