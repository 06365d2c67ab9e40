//! One step: fresh servers, one consumer, the load, the judge.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lab_stand_ins::tally;

use crate::cases::{Case, Store, WARM_UP_SECONDS};
use crate::consumer::{Binaries, Consumer, Place};
use crate::engine::Work;
use crate::figures::{figures, figures_of_engine, quantiles_ms};
use crate::kill;
use crate::kind::Kind;
use crate::limits::Limits;
use crate::load::{
    DRAINED_WITHIN, Load, QUIET, QUIET_LIMITED, Sent, check_the_count, sample, wait_until_quiet,
};
use crate::servers::Servers;
use crate::trial::Trial;

/// How long the last rows usually take after the load at most.
const STORED_WITHIN: Duration = Duration::from_secs(20);
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// What to measure, and with what.
pub(crate) struct Stage<'a> {
    pub(crate) case: &'a Case,
    pub(crate) kind: Kind,
    pub(crate) repetition: u32,
    pub(crate) binaries: &'a Binaries,
    pub(crate) folder: &'a Path,
}

impl Stage<'_> {
    /// A step that fails is a refused one.
    pub(crate) fn measure(&self) -> Trial {
        let mut trial = Trial {
            case: self.case.name.clone(),
            consumer: self.kind.name().to_owned(),
            repetition: self.repetition,
            ..Trial::default()
        };
        let folder = self.folder.join("step");
        if let Err(error) = self.run(&folder, &mut trial) {
            trial.refuse(true, format!("{error:#}"));
        }
        let _ = std::fs::remove_dir_all(&folder);
        trial
    }

    fn run(&self, folder: &Path, trial: &mut Trial) -> Result<()> {
        let case = self.case;
        std::fs::create_dir_all(folder)?;
        let servers = Servers::start(case, self.kind, &self.binaries.milepost, folder)?;
        let version = servers.engine().and_then(|engine| engine.query("SELECT version()"));
        trial.engine_version = version.ok().map(|text| text.trim().to_owned());
        // Dropped after the consumers: only an empty group can be removed.
        let limits = case.limited.then(Limits::of_the_pod);
        let place = Place {
            folder,
            mqtt_port: servers.mqtt_port,
            clickhouse_url: &servers.clickhouse_url,
            qos: case.qos,
            member: 0,
        };
        let mut consumers = self.start_members(&place, limits.as_ref(), trial)?;
        if case.kills > 0 {
            let start_again = || Consumer::start(self.kind, self.binaries, &place);
            return kill::measure(case, &servers, consumers.remove(0), &start_again, trial);
        }
        let load = Load::start(case, &servers)?;
        trial.samples = sample(case, &load, &servers, &mut consumers)?;
        figures(trial, case)?;
        let sent = load.finish(&servers)?;
        trial.messages = sent.messages;
        judge(trial, case, &servers, &sent)?;

        figures_of_the_end(trial, case, &servers, &consumers)?;
        for consumer in &mut consumers {
            consumer.process.signal("TERM")?;
        }
        for consumer in &mut consumers {
            // One that does not leave in time is killed; that it stored everything is known by now.
            let _ = consumer.process.wait(LEAVE_WITHIN);
        }
        Ok(())
    }

    fn start_members(
        &self,
        place: &Place<'_>,
        limits: Option<&Result<Limits>>,
        trial: &mut Trial,
    ) -> Result<Vec<Consumer>> {
        let mut consumers = Vec::new();
        for member in 0..self.case.members {
            let consumer = Consumer::start(self.kind, self.binaries, &Place { member, ..*place })?;
            match limits {
                Some(Ok(limits)) => limits.add(consumer.process.pid())?,
                Some(Err(error)) => trial.unlimited = Some(format!("{error:#}")),
                None => {}
            }
            consumers.push(consumer);
        }
        for consumer in &mut consumers {
            trial.start_to_subscribed_ms = consumer.wait_until_ready()?.as_secs_f64() * 1e3;
        }
        Ok(consumers)
    }
}

/// What the consumers and the servers say of the whole step.
fn figures_of_the_end(
    trial: &mut Trial,
    case: &Case,
    servers: &Servers,
    consumers: &[Consumer],
) -> Result<()> {
    let scrapes = consumers.iter().map(Consumer::scrape).collect::<Result<Vec<_>>>()?;
    trial.flush_own_ms = scrapes[0].flush_ms;
    let warm_up_inserts = trial.samples[WARM_UP_SECONDS as usize].inserts;
    let mut inserts = servers.inserts_took();
    figures_of_engine(trial, case, servers.stored(), inserts.len());
    trial.flush_seen_ms = quantiles_ms(inserts.split_off(warm_up_inserts));
    if case.store == Store::NullTable {
        let empty = Work::of_an_insert(servers.engine()?)?;
        let known = trial.engine_cpu_us_per_row.zip(trial.rows_per_insert);
        trial.parsing_us_per_row = known.map(|(engine, rows)| engine - empty.as_secs_f64() * 1e6 / rows);
    }
    let all: f64 = scrapes.iter().map(|scrape| scrape.messages).sum();
    trial.shares = scrapes.iter().map(|scrape| scrape.messages / all.max(1.0)).collect();
    Ok(())
}

/// What is there of what was sent, and whether the generator told the truth about that.
fn judge(trial: &mut Trial, case: &Case, servers: &Servers, sent: &Sent) -> Result<()> {
    if let Some(manifest) = &sent.manifest {
        check_the_count(trial, servers, manifest)?;
    }
    if let Some(firehose) = &servers.firehose {
        for fault in firehose.faults() {
            trial.refuse(false, fault);
        }
        if case.qos == 1 {
            // The acknowledgements of a batch follow its insert one by one.
            let _ = wait_until_quiet(|| firehose.acked(), |acked| acked >= firehose.sent(), QUIET);
        }
        let (sent, dealt, acked) = (firehose.sent(), firehose.dealt(), firehose.acked());
        if sent != dealt {
            trial.refuse(false, format!("{} messages could not be written", dealt - sent));
        }
        if case.qos == 1 && acked != sent {
            trial.refuse(false, format!("{} messages were never acknowledged", sent - acked));
        }
    }
    // A peer at its limits pauses for seconds.
    let quiet = if case.limited { QUIET_LIMITED } else { QUIET };
    let mut settled = true;
    let (lost, duplicates) = match (case.store, &sent.manifest) {
        (Store::Engine | Store::NoMerges, Some(manifest)) => {
            let mut verdict = servers.verify(manifest, STORED_WITHIN)?;
            if verdict.lost > 0 {
                settled = wait_until_quiet(|| servers.stored(), |_| false, quiet);
                verdict = servers.verify(manifest, Duration::ZERO)?;
            }
            trial.freshness_ms = verdict.freshness_ms;
            (verdict.lost, verdict.duplicates_in_fixes + verdict.never_sent)
        }
        _ => {
            settled = wait_until_quiet(|| servers.stored(), |stored| stored >= sent.messages, quiet);
            by_sets_or_counts(case, servers, sent)
        }
    };
    if !settled {
        trial.refuse(false, format!("it still stores {} s after the load", DRAINED_WITHIN.as_secs()));
    }
    (trial.lost, trial.duplicates) = (Some(lost), Some(duplicates));
    Ok(())
}

fn by_sets_or_counts(case: &Case, servers: &Servers, sent: &Sent) -> (u64, u64) {
    match &servers.sink {
        Some(sink) if case.drivers <= tally::DRIVERS_MAX => {
            let verdict = sink.tally().compare(&sent.by_driver);
            (verdict.lost, verdict.duplicates + verdict.never_sent)
        }
        _ => {
            let stored = servers.stored();
            (sent.messages.saturating_sub(stored), stored.saturating_sub(sent.messages))
        }
    }
}
