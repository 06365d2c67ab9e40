//! The findings against a consumer, one sentence each. The page prints them, and `--prove` checks
//! them.

use crate::record::{Ceiling, Finding, Outcome};

/// Growth of private memory in the second half of a run, in MiB. Only growth above this value and
/// above [`GROWTH_SHARE`] is a finding.
const GROWTH_MIB: f64 = 5.0;
/// Growth in the second half of a run, as a share of the private memory at the start of that half.
const GROWTH_SHARE: f64 = 0.2;
/// Shortest run, in seconds, that can show growth: before that, caches fill and compilers run.
const GROWTH_SECONDS: f64 = 45.0;
/// A broker that uses this many cores is at its limit: Mosquitto has one thread, and shares the
/// machine with the other programs.
const BROKER_CORES: f64 = 0.7;
/// CPU cores used by other processes. If the other processes use more, a consumer that falls behind
/// is not reported, because the machine may be the cause.
const OTHERS_CORES: f64 = 0.15;
/// Share of the target rate. If a consumer stores less than this share, the step shows a ceiling.
const RATE_HELD: f64 = 0.95;

/// Returns the findings that one outcome supports.
pub(crate) fn find(outcome: &Outcome) -> Vec<Finding> {
    let Outcome { part, step, .. } = outcome;
    let mut found = Vec::new();
    let mut add = |kind: &str, sentence: String| {
        found.push(Finding { part: part.clone(), what: kind.to_owned(), sentence });
    };
    let rate = step.map_or(0, |step| step.rate);
    let during = match part.as_str() {
        "kill" => format!("after {} SIGKILLs, at {rate} messages/s", outcome.kills),
        "outage" => format!("while ClickHouse is away, at {rate} messages/s"),
        "hostile" => format!("among hostile messages, at {rate} messages/s"),
        "pod" | "smaller" => {
            let limit = outcome.limit.map_or(String::new(), |limit| {
                format!(" in a pod of {} cores and {} MiB", limit.cores, limit.memory_mib)
            });
            format!("at {rate} messages/s{limit}")
        }
        "everyone" => {
            format!("from {} drivers that send once each", step.map_or(0, |step| step.drivers))
        }
        _ => format!("at a target of {rate} messages/s"),
    };
    if let Some(error) = &outcome.error {
        add("fails", format!("fails {during}: {error}"));
        return found;
    }
    let dropped = outcome.broker_dropped.unwrap_or(0);
    match outcome.lost.unwrap_or(0).saturating_sub(dropped) {
        0 => {}
        lost => add("loses", format!("loses {lost} of {} messages {during}", outcome.messages)),
    }
    match outcome.twice.unwrap_or(0) {
        0 => {}
        twice => add(
            "doubles",
            format!("stores {twice} rows that are duplicates or were never sent, {during}"),
        ),
    }
    match outcome.bad_stored.unwrap_or(0) {
        0 => {}
        bad => add("stores", format!("stores {bad} rows of messages that are not positions")),
    }
    if !outcome.is_alive {
        add("dies", format!("exits by itself {during}"));
    }
    if part == "memory" && grows(outcome) {
        let slope = outcome.slope_mib_per_min.unwrap_or(0.0);
        add("grows", format!("grows by {slope:.1} MiB a minute {during}"));
    }
    let is_quiet = outcome.others_cores <= OTHERS_CORES;
    if (part == "pod" || part == "smaller") && !outcome.holds && is_quiet {
        add(
            "fails",
            format!(
                "does not keep up {during}: it stores {:.0} rows a second",
                outcome.stored_per_s
            ),
        );
    }
    found
}

/// Returns whether private memory grows in the second half of the run.
fn grows(outcome: &Outcome) -> bool {
    let half = &outcome.samples[outcome.samples.len() / 2..];
    let Some((first, last)) = half.first().zip(half.last()) else { return false };
    let minutes = (last.seconds - first.seconds) / 60.0;
    let growth = outcome.slope_mib_per_min.unwrap_or(0.0) * minutes;
    last.seconds >= GROWTH_SECONDS
        && growth > GROWTH_MIB
        && growth > first.memory.private * GROWTH_SHARE
}

/// Returns the highest rate that any consumer stored through the broker at this QoS, if the broker
/// was the bottleneck.
pub(crate) fn broker_ceiling(outcomes: &[Outcome], qos: u8) -> Option<Ceiling> {
    let is_through_broker = |outcome: &&Outcome| {
        outcome.part == "ramp"
            && outcome
                .step
                .is_some_and(|step| step.qos == qos && step.through == crate::plan::Through::Broker)
    };
    let best = outcomes
        .iter()
        .filter(is_through_broker)
        .filter(|outcome| {
            outcome.step.is_some_and(|step| outcome.stored_per_s < f64::from(step.rate) * RATE_HELD)
        })
        .max_by(|a, b| a.stored_per_s.total_cmp(&b.stored_per_s))?;
    let broker_cores = best.broker_cores.unwrap_or(1.0);
    (broker_cores >= BROKER_CORES).then_some(Ceiling { qos, rate: best.stored_per_s, broker_cores })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{MemoryMib, Sample};

    fn names(outcome: &Outcome) -> Vec<String> {
        find(outcome).into_iter().map(|finding| finding.what).collect()
    }

    fn good(part: &str) -> Outcome {
        Outcome {
            part: part.to_owned(),
            lost: Some(0),
            is_alive: true,
            holds: true,
            ..Outcome::default()
        }
    }

    #[test]
    fn good_consumer_has_no_finding() {
        for part in ["ramp", "kill", "outage", "hostile", "pod", "memory"] {
            assert_eq!(names(&good(part)), Vec::<String>::new());
        }
    }

    #[test]
    fn each_mistake_is_named() {
        assert_eq!(names(&Outcome { lost: Some(7), ..good("kill") }), ["loses"]);
        assert_eq!(names(&Outcome { twice: Some(7), ..good("kill") }), ["doubles"]);
        assert_eq!(names(&Outcome { bad_stored: Some(1), ..good("hostile") }), ["stores"]);
        assert_eq!(names(&Outcome { is_alive: false, ..good("hostile") }), ["dies"]);
        assert_eq!(names(&Outcome { holds: false, ..good("pod") }), ["fails"]);
        let busy = Outcome { holds: false, others_cores: 1.0, ..good("pod") };
        assert_eq!(names(&busy), Vec::<String>::new(), "the machine may be the cause");
        assert_eq!(names(&Outcome { error: Some("no".to_owned()), ..good("ramp") }), ["fails"]);
        let dropped = Outcome { lost: Some(7), broker_dropped: Some(7), ..good("ramp") };
        assert_eq!(
            names(&dropped),
            Vec::<String>::new(),
            "the broker's loss is not the consumer's"
        );
    }

    #[test]
    fn leak_is_named_but_a_filling_cache_is_not() {
        let run = |private: fn(f64) -> f64| {
            let sample = |second: u32| Sample {
                seconds: second.into(),
                memory: MemoryMib { private: private(second.into()), ..MemoryMib::default() },
                ..Sample::default()
            };
            let samples: Vec<Sample> = (0..=60).map(sample).collect();
            let slope = samples[60].memory.private - samples[30].memory.private;
            Outcome { samples, slope_mib_per_min: Some(slope * 2.0), ..good("memory") }
        };
        assert_eq!(names(&run(|second| 5.0 + second)), ["grows"]);
        assert_eq!(names(&run(|second| 100.0 + second.min(20.0))), Vec::<String>::new());
    }
}
