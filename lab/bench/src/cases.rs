//! The cases of the benchmark. Each case is one table of the report.

use std::time::Duration;

use crate::kind::Kind;

/// Uncounted seconds at the start of a step, in which JIT compilers compile and the first batches
/// fill.
pub(crate) const WARM_UP_SECONDS: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A Mosquitto broker and a simulated fleet.
    Mosquitto,
    /// The stand-in broker, which sends as fast as the consumer reads.
    Firehose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// The real engine with milepost's tables; inserts are durable.
    Engine,
    /// The stand-in that counts rows.
    Sink,
}

/// A load, and the consumers that are measured under it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Name for `--only`.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) source: Source,
    pub(crate) store: Store,
    pub(crate) qos: u8,
    pub(crate) drivers: u32,
    /// Messages per second. `None`: as fast as the consumer reads.
    pub(crate) rate: Option<u32>,
    /// Counted seconds of a step, after its warm-up.
    pub(crate) seconds: u32,
    pub(crate) repetitions: u32,
    /// The value of milepost's `mqtt.connections`. `None`: its default.
    pub(crate) connections: Option<u32>,
    /// Number of kills of the consumer under load. A case with kills does not report CPU and
    /// memory.
    pub(crate) kills: u32,
    pub(crate) kinds: Vec<Kind>,
}

impl Case {
    /// Estimates the duration of a step.
    pub(crate) fn step_duration(&self) -> Duration {
        // Time to start the servers and the consumer, and to verify the stored rows.
        let overhead_seconds = if self.store == Store::Engine { 7 } else { 3 };
        Duration::from_secs(u64::from(WARM_UP_SECONDS + self.seconds + overhead_seconds))
    }

    fn with_fleet(name: &str, rate: u32, qos: u8, store: Store) -> Self {
        let target = if store == Store::Engine { "ClickHouse engine" } else { "null sink" };
        Self {
            name: name.to_owned(),
            title: format!("{rate} messages/s at QoS {qos}: Mosquitto → {target}"),
            source: Source::Mosquitto,
            store,
            qos,
            drivers: 5_000,
            rate: Some(rate),
            seconds: 10,
            repetitions: 3,
            connections: None,
            kills: 0,
            kinds: vec![Kind::Milepost, Kind::Node, Kind::Floor],
        }
    }

    fn kill() -> Self {
        Self {
            title:
                "kill -9 under load, three times: 10000 messages/s at QoS 1, Mosquitto → ClickHouse engine"
                    .to_owned(),
            // Use fewer drivers, because losses are counted driver by driver.
            drivers: 500,
            seconds: 4,
            repetitions: 1,
            kills: 3,
            ..Self::with_fleet("kill-9", 10_000, 1, Store::Engine)
        }
    }

    fn ceiling() -> Self {
        Self {
            title: "Ceiling at QoS 0: firehose → null sink, as fast as the consumer reads"
                .to_owned(),
            source: Source::Firehose,
            rate: None,
            seconds: 4,
            ..Self::with_fleet("ceiling-qos0", 0, 0, Store::Sink)
        }
    }
}

/// Returns the cases of `make bench`. They take less than ten minutes and need no Go.
pub(crate) fn quick() -> Vec<Case> {
    vec![
        Case::with_fleet("engine-20k-qos1", 20_000, 1, Store::Engine),
        Case::with_fleet("sink-50k-qos0", 50_000, 0, Store::Sink),
        Case::ceiling(),
        Case::kill(),
    ]
}

/// Returns the cases of `lab bench --full`: the quick cases with longer steps, Telegraf wherever
/// the store is the engine, and cases with different numbers of connections.
pub(crate) fn full() -> Vec<Case> {
    let mut cases = quick();
    for case in &mut cases {
        if case.source == Source::Mosquitto && case.kills == 0 {
            case.seconds = 20;
        }
        if case.store == Store::Engine {
            case.kinds.push(Kind::Telegraf);
        }
    }
    cases.push(Case::with_fleet("sink-10k-qos0", 10_000, 0, Store::Sink));
    cases.extend([1, 4, 64].map(|connections| Case {
        title: format!(
            "{connections} connections; 50000 messages/s at QoS 0, Mosquitto → null sink"
        ),
        connections: Some(connections),
        kinds: vec![Kind::Milepost],
        ..Case::with_fleet(&format!("connections-{connections}"), 50_000, 0, Store::Sink)
    }));
    cases
}
