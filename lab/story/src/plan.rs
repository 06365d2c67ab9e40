//! The plan of the experiment: reads and checks `story.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// A plan of consumers, load and faults.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) consumers: Vec<Consumer>,
    /// Lengths of the parts, by the name of the run: quick, full, smoke.
    pub(crate) seconds: BTreeMap<String, Seconds>,
    pub(crate) ramp: Vec<Step>,
    pub(crate) kill: Kill,
    pub(crate) outage: Fleet,
    pub(crate) hostile: Hostile,
    pub(crate) pod: Pod,
    pub(crate) smaller: Vec<Limit>,
    pub(crate) everyone: Fleet,
    pub(crate) memory: Memory,
    pub(crate) price: Price,
}

/// A consumer, and how the laboratory starts and queries it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Consumer {
    pub(crate) name: String,
    /// Name of the consumer that supplies the settings missing here.
    like: Option<String>,
    pub(crate) title: String,
    pub(crate) colour: String,
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// Arguments of a command that runs before the consumer, such as `migrate`.
    pub(crate) prepare: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    /// HTTP path that answers 200 once the consumer is subscribed.
    pub(crate) ready: String,
    /// Text that the answer at `ready` must contain.
    pub(crate) ready_words: String,
    /// Histogram of insert durations in /metrics.
    pub(crate) flush: String,
    pub(crate) full_only: bool,
    /// `false`: the consumer needs a real broker and ClickHouse, because the stand-ins do not speak
    /// its protocol or format.
    pub(crate) stand_ins: Option<bool>,
    /// Client ids of the consumer's sessions. If the laboratory did not start the broker, the
    /// laboratory ends these sessions after each step. `{n}` stands for 0 to 63.
    pub(crate) sessions: Vec<String>,
    /// Part and kind of the finding that the report must have against this consumer. `None`: the
    /// consumer has no planted mistake.
    pub(crate) must_show: Option<[String; 2]>,
}

/// Seconds of each part.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seconds {
    /// Seconds of warm-up at the start of each step, before the counted seconds of its part.
    pub(crate) warm_up: u32,
    pub(crate) step: u32,
    pub(crate) kill: u32,
    pub(crate) outage: u32,
    /// Seconds for which ClickHouse is away in the part `outage`.
    pub(crate) away: u32,
    pub(crate) hostile: u32,
    pub(crate) pod: u32,
    pub(crate) memory: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Through {
    /// A real broker and a fleet.
    Broker,
    /// The stand-in for a broker, which sends faster than any broker.
    Firehose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Destination {
    /// The real engine with milepost's tables.
    ClickHouse,
    /// The stand-in that counts rows.
    Sink,
}

/// One step: a load, its source and its destination.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) drivers: u32,
    /// Messages per second.
    pub(crate) rate: u32,
    pub(crate) through: Through,
    pub(crate) into: Destination,
    pub(crate) qos: u8,
    #[serde(default, skip_serializing)]
    pub(crate) full_only: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fleet {
    drivers: u32,
    rate: u32,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kill {
    drivers: u32,
    rate: u32,
    pub(crate) times: u32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hostile {
    drivers: u32,
    rate: u32,
    pub(crate) times: u32,
    pub(crate) messages: Vec<HostileMessage>,
}

/// A message that is not a position.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostileMessage {
    #[serde(default = "hostile_topic")]
    pub(crate) topic: String,
    pub(crate) payload: String,
    #[serde(default = "once")]
    pub(crate) repeated: usize,
}

fn hostile_topic() -> String {
    "drivers/hostile/gps".to_owned()
}

fn once() -> usize {
    1
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pod {
    drivers: u32,
    rate: u32,
    cores: f64,
    memory_mib: u64,
}

/// CPU cores and memory, in MiB, that a pod may use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    pub(crate) cores: f64,
    pub(crate) memory_mib: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    drivers: u32,
    /// Share of the broker's ceiling at which the load is sent.
    share: f64,
    /// Messages per second if no ceiling was measured.
    rate: u32,
}

/// Prices of a CPU core and of a GiB of memory for a month.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Price {
    currency: String,
    core_month: f64,
    gib_month: f64,
}

fn broker_to_clickhouse(drivers: u32, rate: u32) -> Step {
    Step {
        drivers,
        rate,
        through: Through::Broker,
        into: Destination::ClickHouse,
        qos: 1,
        full_only: false,
    }
}

impl Step {
    /// Returns whether a stand-in replaces the broker or ClickHouse.
    pub(crate) fn has_stand_in(&self) -> bool {
        self.through == Through::Firehose || self.into == Destination::Sink
    }

    /// Returns whether both steps load a consumer in the same way.
    pub(crate) fn is_same_load(&self, other: &Self) -> bool {
        (self.drivers, self.rate, self.qos) == (other.drivers, other.rate, other.qos)
            && (self.through, self.into) == (other.through, other.into)
    }
}

impl Fleet {
    pub(crate) fn step(self) -> Step {
        broker_to_clickhouse(self.drivers, self.rate)
    }

    /// Returns a step, and its duration in seconds. In the step, the firehose sends one message of
    /// each driver, and the consumer stores the messages in ClickHouse.
    pub(crate) fn each_once(self) -> (Step, u32) {
        let step = Step { through: Through::Firehose, qos: 0, ..self.step() };
        (step, self.drivers.div_ceil(self.rate))
    }
}

impl Kill {
    pub(crate) fn step(self) -> Step {
        broker_to_clickhouse(self.drivers, self.rate)
    }
}

impl Hostile {
    pub(crate) fn step(&self) -> Step {
        broker_to_clickhouse(self.drivers, self.rate)
    }
}

impl Pod {
    pub(crate) fn step(self) -> Step {
        broker_to_clickhouse(self.drivers, self.rate)
    }

    pub(crate) fn limit(self) -> Limit {
        Limit { cores: self.cores, memory_mib: self.memory_mib }
    }
}

impl Memory {
    /// Returns the step. Its rate is a share of the broker's ceiling, or the plan's rate if no
    /// ceiling was measured.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
    pub(crate) fn step(self, ceiling: Option<f64>) -> Step {
        let rate = ceiling
            .map_or(self.rate, |ceiling| ((ceiling * self.share / 1e3).round() * 1e3) as u32);
        broker_to_clickhouse(self.drivers, rate.max(1_000))
    }
}

impl Plan {
    /// Reads a plan. If `planted` is given, the consumers in that file replace those of the plan.
    pub(crate) fn read(path: &Path, planted: Option<&Path>) -> Result<Self> {
        let read_text = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut plan: Self =
            toml::from_str(&read_text(path)?).with_context(|| path.display().to_string())?;
        if let Some(planted) = planted {
            #[derive(Deserialize)]
            struct Planted {
                consumers: Vec<Consumer>,
            }
            let read: Planted = toml::from_str(&read_text(planted)?)?;
            plan.consumers = read.consumers;
        }
        plan.resolve()?;
        Ok(plan)
    }

    /// Fills in the settings that consumers inherit by `like`, and the default of `ready`.
    fn resolve(&mut self) -> Result<()> {
        let as_read = self.consumers.clone();
        for consumer in &mut self.consumers {
            if let Some(like) = consumer.like.take() {
                let original =
                    as_read.iter().find(|other| other.name == like && other.like.is_none());
                let original = original.with_context(|| {
                    format!(
                        "{}: like = {like:?} must name a consumer that has no `like`",
                        consumer.name
                    )
                })?;
                consumer.inherit_from(original);
            }
            ensure!(
                !consumer.name.is_empty() && !consumer.program.is_empty(),
                "a consumer needs a name and a program"
            );
            if consumer.ready.is_empty() {
                consumer.ready = "/readyz".to_owned();
            }
        }
        Ok(())
    }
}

impl Consumer {
    fn inherit_from(&mut self, original: &Self) {
        let inherit = |own: &mut String, original: &String| {
            if own.is_empty() {
                own.clone_from(original);
            }
        };
        inherit(&mut self.program, &original.program);
        inherit(&mut self.ready, &original.ready);
        inherit(&mut self.ready_words, &original.ready_words);
        inherit(&mut self.flush, &original.flush);
        if self.arguments.is_empty() {
            self.arguments.clone_from(&original.arguments);
        }
        if self.prepare.is_empty() {
            self.prepare.clone_from(&original.prepare);
        }
        if self.sessions.is_empty() {
            self.sessions.clone_from(&original.sessions);
        }
        let own = std::mem::take(&mut self.environment);
        self.environment = original.environment.clone();
        self.environment.extend(own);
        self.stand_ins = self.stand_ins.or(original.stand_ins);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_stack::repository;

    fn story() -> Plan {
        Plan::read(&repository().join("lab/story/story.toml"), None).unwrap()
    }

    #[test]
    fn bun_runs_the_same_files_as_node() {
        let plan = story();
        let consumer =
            |name: &str| plan.consumers.iter().find(|consumer| consumer.name == name).unwrap();
        assert_eq!(consumer("bun").arguments, consumer("node").arguments);
        assert_eq!(consumer("bun").environment, consumer("node").environment);
        assert_ne!(consumer("bun").program, consumer("node").program);
    }

    #[test]
    fn ramp_reaches_ten_million_drivers_and_messages_per_second() {
        let last = *story().ramp.last().unwrap();
        assert_eq!((last.drivers, last.rate), (10_000_000, 10_000_000));
    }

    #[test]
    fn planted_consumers_replace_those_of_the_story() {
        let folder = repository().join("lab/story");
        let plan =
            Plan::read(&folder.join("story.toml"), Some(&folder.join("planted.toml"))).unwrap();
        assert!(plan.consumers.iter().filter(|consumer| consumer.must_show.is_some()).count() >= 3);
    }
}
