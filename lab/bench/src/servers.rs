//! Starts the servers that a consumer needs for one step: real servers, or stand-ins for them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_harness::scripted_clickhouse::ScriptedClickHouse;
use lab_mqtt::{Publish, first_packet, put_connect, put_subscribe};
use lab_stack::{Broker, ClickHouse, Settings};
use lab_stand_ins::firehose::{self, Firehose};
use lab_stand_ins::sink::Sink;
use loadgen::manifest::Manifest;
use loadgen::verify::{Verdict, verify};

use crate::cases::{Case, Source, Store};
use crate::kind::Kind;

/// Longest wait for the broker's count of messages. Mosquitto publishes the count each second.
const COUNT_WITHIN: Duration = Duration::from_secs(10);

/// The servers on both sides of a consumer. Messages come from Mosquitto or the firehose; rows go
/// to the engine or the sink.
pub(crate) struct Servers {
    pub(crate) firehose: Option<Firehose>,
    pub(crate) sink: Option<Sink>,
    /// The engine, behind a proxy that can withhold the answer of an insert.
    engine: Option<(ClickHouse, ScriptedClickHouse)>,
    pub(crate) mqtt_port: u16,
    pub(crate) clickhouse_url: String,
    /// Rows that the engine had written before the consumer started.
    rows_before: u64,
    _broker: Option<Broker>,
}

impl Servers {
    pub(crate) fn start(case: &Case, kind: Kind, milepost: &Path, folder: &Path) -> Result<Self> {
        let (broker, firehose, mqtt_port, first_seq) = match case.source {
            Source::Mosquitto => {
                let broker = Broker::start(folder)?;
                let port = broker.port;
                (Some(broker), None, port, 1)
            }
            Source::Firehose => {
                let firehose = Firehose::start(case.drivers)?;
                let port = firehose.port;
                (None, Some(firehose), port, firehose::FIRST_SEQ)
            }
        };
        let (engine, sink, clickhouse_url) = if case.store == Store::Sink {
            let sink = Sink::start(case.drivers, first_seq)?;
            let url = sink.url();
            (None, Some(sink), url)
        } else {
            let engine = ClickHouse::start(folder)?;
            let proxy = ScriptedClickHouse::start(&[engine.url()])?;
            let url = proxy.url();
            (Some((engine, proxy)), None, url)
        };
        // milepost inserts only if the migrations are recorded, so migrate the sink too. The other
        // consumers need no more than tables, and the sink takes rows without any table.
        if kind == Kind::Milepost {
            Settings::new(milepost, folder, mqtt_port, &clickhouse_url).migrate()?;
        } else if let Some((engine, _)) = &engine {
            engine.create_tables("fleet")?;
        }
        let rows_before = engine.as_ref().map_or(Ok(0), |(engine, _)| inserted_rows(engine))?;
        Ok(Self { firehose, sink, engine, mqtt_port, clickhouse_url, rows_before, _broker: broker })
    }

    pub(crate) fn engine(&self) -> Result<&ClickHouse> {
        self.engine
            .as_ref()
            .map(|(engine, _)| engine)
            .context("this case uses the sink, which has no tables")
    }

    pub(crate) fn proxy(&self) -> Result<&ScriptedClickHouse> {
        self.engine
            .as_ref()
            .map(|(_, proxy)| proxy)
            .context("this case uses the sink, which has no proxy")
    }

    /// Returns the number of rows stored so far. In the engine, rows of the views' tables count
    /// too. Do not call this function while the engine's CPU is measured: the query costs CPU.
    pub(crate) fn stored(&self) -> u64 {
        let in_sink = || self.sink.as_ref().map_or(0, Sink::rows);
        self.engine()
            .and_then(inserted_rows)
            .map_or_else(|_| in_sink(), |rows| rows - self.rows_before)
    }

    /// Returns the durations of all inserts so far, as the proxy or the sink measured them.
    pub(crate) fn insert_durations(&self) -> Vec<Duration> {
        let at_sink = || self.sink.as_ref().map_or(Vec::new(), Sink::insert_durations);
        self.proxy().map_or_else(|_| at_sink(), ScriptedClickHouse::insert_durations)
    }

    /// Returns the tables of the engine.
    pub(crate) fn tables(&self) -> Result<lab_stack::Store> {
        Ok(self.engine()?.store("fleet"))
    }

    pub(crate) fn verify(&self, manifest: &Manifest, within: Duration) -> Result<Verdict> {
        verify(&self.tables()?, manifest, within)
    }
}

/// Returns the number of rows that inserts have written since the engine started, as the engine
/// counts them. Rows of the views' tables are included.
pub(crate) fn inserted_rows(engine: &ClickHouse) -> Result<u64> {
    let rows = engine.query("SELECT sum(value) FROM system.events WHERE event = 'InsertedRows'")?;
    Ok(rows.trim().parse()?)
}

/// Waits until the broker has counted `expected` messages, at most for [`COUNT_WITHIN`]. Returns
/// the broker's last count.
pub(crate) fn broker_received(port: u16, expected: u64) -> Result<u64> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(COUNT_WITHIN))?;
    let mut out = Vec::new();
    put_connect("bench-count", None, 0, &mut out);
    put_subscribe(1, "$SYS/broker/publish/messages/received", 0, &mut out);
    stream.write_all(&out)?;

    let began = Instant::now();
    let (mut input, mut buffer, mut count) = (Vec::new(), [0; 4096], None);
    while count != Some(expected) && began.elapsed() < COUNT_WITHIN {
        let Ok(read) = stream.read(&mut buffer) else { break };
        ensure!(read > 0, "the broker closed the connection");
        input.extend_from_slice(&buffer[..read]);
        while let Some(packet) = first_packet(&input)? {
            if packet.kind == lab_mqtt::kind::PUBLISH {
                count = Some(std::str::from_utf8(Publish::read(packet)?.payload)?.parse()?);
            }
            let len = packet.len;
            input.drain(..len);
        }
    }
    count.context("the broker did not publish its count of received messages")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use loadgen::publish::{self, Plan, Progress};

    #[test]
    fn engine_counts_the_rows_of_an_insert() {
        let folder = tempfile::tempdir().unwrap();
        let engine = ClickHouse::start(folder.path()).unwrap();
        let before = inserted_rows(&engine).unwrap();
        engine.query("CREATE TABLE nothing (n UInt64) ENGINE = Null").unwrap();
        engine.query("INSERT INTO nothing SELECT number FROM numbers(100000)").unwrap();
        assert_eq!(inserted_rows(&engine).unwrap() - before, 100_000);
    }

    #[test]
    fn broker_counts_the_messages_it_received() {
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
        assert_eq!(
            broker_received(broker.port, 26).unwrap(),
            25,
            "the count must be the broker's, whatever number is expected"
        );
    }
}
