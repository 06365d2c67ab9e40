//! What is measured: one case a table of the report.

use std::time::Duration;

use crate::kind::Kind;
use crate::words::thousands;

/// The first seconds of a step do not count: compilers at run time are at work, batches fill for the first time.
pub(crate) const WARM_UP_SECONDS: u32 = 2;

/// Where the messages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A real broker, and a fleet.
    Mosquitto,
    /// `lab firehose`.
    Firehose,
}

/// Where the rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// The real engine with milepost's tables, durable.
    Engine,
    /// The same without merges, whose moments are the engine's choice: what the inserts themselves cost it.
    NoMerges,
    /// The real engine, where `positions` is a Null table: it parses, and keeps nothing.
    NullTable,
    /// `lab sink`.
    Sink,
}

/// One load, for several consumers.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) source: Source,
    pub(crate) store: Store,
    pub(crate) qos: u8,
    pub(crate) drivers: u32,
    /// Messages a second; `None`: what the consumer takes.
    pub(crate) rate: Option<u32>,
    pub(crate) seconds: u32,
    pub(crate) repetitions: u32,
    /// Processes in one share group.
    pub(crate) members: u32,
    /// The pod of the story: a quarter of a core, 128 MiB.
    pub(crate) limited: bool,
    /// How often the consumer is killed at load; then its cost does not count.
    pub(crate) kills: u32,
    pub(crate) kinds: Vec<Kind>,
}

impl Case {
    /// Warm-up, load, and what starting and judging take.
    pub(crate) fn takes(&self) -> Duration {
        let around = match self.store {
            Store::Engine | Store::NoMerges | Store::NullTable => 7,
            Store::Sink => 3,
        };
        Duration::from_secs(u64::from(WARM_UP_SECONDS + self.seconds + around))
    }

    fn real(name: &str, rate: u32, qos: u8, store: Store) -> Self {
        let to = match store {
            Store::Engine => "ClickHouse engine",
            Store::NoMerges => "ClickHouse engine, merges stopped",
            Store::NullTable => "ClickHouse engine, Null table",
            Store::Sink => "null sink",
        };
        Self {
            name: name.to_owned(),
            title: format!("{} messages/s at QoS {qos}: Mosquitto → {to}", thousands(rate)),
            source: Source::Mosquitto,
            store,
            qos,
            drivers: 5_000,
            rate: Some(rate),
            seconds: 20,
            repetitions: 3,
            members: 1,
            limited: false,
            kills: 0,
            kinds: Kind::WITHOUT_PUBLISHED.to_vec(),
        }
    }

    fn kill() -> Self {
        let (rate, kills) = (10_000, 3);
        Self {
            title: format!(
                "kill -9 at load: {} messages/s at QoS 1, Mosquitto → ClickHouse engine; killed {kills} times, \
                 and started again at once",
                thousands(rate)
            ),
            // Losses are compared driver by driver.
            drivers: 500,
            kills,
            ..Self::real("kill-9", rate, 1, Store::Engine)
        }
    }

    fn ceiling(name: &str, qos: u8) -> Self {
        Self {
            title: format!("Ceiling at QoS {qos}: firehose → null sink, as fast as the consumer goes"),
            source: Source::Firehose,
            rate: None,
            seconds: 4,
            ..Self::real(name, 0, qos, Store::Sink)
        }
    }
}

/// `make bench`: under ten minutes, and nothing to build but ours.
pub(crate) fn quick() -> Vec<Case> {
    let mut cases = vec![
        Case { seconds: 10, ..Case::real("engine-20k-qos1", 20_000, 1, Store::Engine) },
        Case { seconds: 10, ..Case::real("sink-50k-qos0", 50_000, 0, Store::Sink) },
        Case::ceiling("ceiling-qos0", 0),
        Case { seconds: 4, repetitions: 1, ..Case::kill() },
    ];
    cases.iter_mut().for_each(|case| case.kinds = Kind::QUICK.to_vec());
    cases
}

/// `make bench-full`: what `make bench` has, longer and with more consumers; then what is seen in a series, once each.
pub(crate) fn full() -> Vec<Case> {
    let mut cases = vec![
        Case { kinds: Kind::ALL.to_vec(), ..Case::real("engine-20k-qos1", 20_000, 1, Store::Engine) },
        Case::real("sink-50k-qos0", 50_000, 0, Store::Sink),
        Case::ceiling("ceiling-qos0", 0),
        Case::ceiling("ceiling-qos1", 1),
        Case { kinds: Kind::ALL.to_vec(), repetitions: 1, ..Case::kill() },
        Case {
            title:
                "The pod of the story: 5,000 drivers twice a second at QoS 1, a quarter of a core, 128 MiB"
                    .to_owned(),
            limited: true,
            repetitions: 1,
            kinds: Kind::ALL.to_vec(),
            ..Case::real("pod", 10_000, 1, Store::Engine)
        },
        Case {
            kinds: vec![Kind::Milepost, Kind::Node],
            ..Case::real("no-merges-20k-qos1", 20_000, 1, Store::NoMerges)
        },
        Case {
            kinds: vec![Kind::Milepost, Kind::Node],
            ..Case::real("null-table-20k-qos1", 20_000, 1, Store::NullTable)
        },
    ];
    cases.extend([1, 2, 4].map(|members| Case {
        title: format!(
            "Members of one share group: {members}; 20,000 messages/s at QoS 1, Mosquitto → null sink"
        ),
        members,
        kinds: vec![Kind::Milepost],
        ..Case::real(&format!("members-{members}"), 20_000, 1, Store::Sink)
    }));
    cases.extend(series());
    cases.push(Case {
        title: "Ten minutes at 50,000 messages/s, QoS 0: Mosquitto → null sink; how memory grows".to_owned(),
        seconds: 600,
        repetitions: 1,
        kinds: vec![Kind::Milepost],
        ..Case::real("slope", 50_000, 0, Store::Sink)
    });
    cases
}

/// One step a consumer and case: a line through several says more than the same point again.
fn series() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, rate) in [("10", 10), ("1k", 1_000), ("5k", 5_000)] {
        cases.push(Case::real(&format!("engine-{name}-qos1"), rate, 1, Store::Engine));
    }
    for (name, rate) in [("1k", 1_000), ("10k", 10_000)] {
        cases.push(Case::real(&format!("sink-{name}-qos0"), rate, 0, Store::Sink));
    }
    cases.push(Case::real("sink-20k-qos1", 20_000, 1, Store::Sink));
    // To ten million a second: what the consumer cannot take, the firehose does not send.
    for rate in [100_000, 1_000_000, 10_000_000] {
        cases.push(Case {
            title: format!("{} messages/s wanted at QoS 0: firehose → null sink", thousands(rate)),
            rate: Some(rate),
            seconds: 10,
            ..Case::ceiling(&format!("target-{}k", rate / 1000), 0)
        });
    }
    for drivers in [1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
        cases.push(Case {
            title: format!(
                "{} drivers: 50,000 messages/s at QoS 0, firehose → null sink",
                thousands(drivers)
            ),
            drivers,
            rate: Some(50_000),
            seconds: 10,
            kinds: vec![Kind::Milepost, Kind::Node, Kind::Floor],
            ..Case::ceiling(&format!("fleet-{}k", drivers / 1000), 0)
        });
    }
    cases.iter_mut().for_each(|case| case.repetitions = 1);
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_bench_stays_below_ten_minutes() {
        let takes = |case: &Case| case.takes() * case.repetitions * u32::try_from(case.kinds.len()).unwrap();
        let total: Duration = quick().iter().map(takes).sum();
        assert!(total < Duration::from_secs(570), "{total:?}, and npm ci needs some too");
        let total: Duration = full().iter().map(takes).sum();
        assert!(total < Duration::from_secs(90 * 60), "the full one is for a long lunch: {total:?}");
    }
}
