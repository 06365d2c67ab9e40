//! Measures one step: starts fresh servers and one consumer, sends the load, and verifies the
//! store.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cases::{Case, WARM_UP_SECONDS};
use crate::consumer::{Binaries, Consumer, RunConfig};
use crate::figures::{charge_by_engine_rows, compute_figures, quantiles_ms};
use crate::kill;
use crate::kind::Kind;
use crate::load::{DRAINED_WITHIN, Load, QUIET, Sent, check_count, sample, wait_until_quiet};
use crate::servers::Servers;
use crate::trial::Trial;

/// Time after the load in which the last rows are usually stored.
const STORED_WITHIN: Duration = Duration::from_secs(20);
const EXIT_WITHIN: Duration = Duration::from_secs(10);

/// The step to measure, with the programs and the folder it uses.
pub(crate) struct Stage<'a> {
    pub(crate) case: &'a Case,
    pub(crate) kind: Kind,
    pub(crate) repetition: u32,
    pub(crate) binaries: &'a Binaries,
    pub(crate) folder: &'a Path,
    /// Maximum CPU cores that other processes may use. If they use more, the step is refused.
    pub(crate) others_cores_max: f64,
}

impl Stage<'_> {
    /// Runs the step. If the step fails, the trial is marked as refused.
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
        if trial.others_cores > self.others_cores_max {
            trial.refuse(true, format!("other processes used {:.2} cores", trial.others_cores));
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
        let config = RunConfig {
            folder,
            mqtt_port: servers.mqtt_port,
            clickhouse_url: &servers.clickhouse_url,
            qos: case.qos,
            connections: case.connections,
        };
        let start = || Consumer::start(self.kind, self.binaries, &config);
        let mut consumer = start()?;
        trial.start_to_subscribed_ms = consumer.wait_until_ready()?.as_secs_f64() * 1e3;
        if case.kills > 0 {
            return kill::measure(case, &servers, consumer, &start, trial);
        }
        let load = Load::start(case, &servers)?;
        trial.samples = sample(case, &load, &servers, &mut consumer)?;
        compute_figures(trial, case)?;
        let sent = load.finish(&servers)?;
        trial.messages = sent.messages;
        verify(trial, &servers, &sent)?;
        charge_by_engine_rows(trial, case, servers.stored());
        let warm_up_inserts = trial.samples[WARM_UP_SECONDS as usize].inserts;
        trial.flush_ms = quantiles_ms(servers.insert_durations().split_off(warm_up_inserts));
        consumer.process.signal("TERM")?;
        // A consumer that does not exit in time is killed when it is dropped. The rows that it
        // stored have already been verified.
        let _ = consumer.process.wait(EXIT_WITHIN);
        Ok(())
    }
}

/// Compares the stored fixes with the sent fixes. Refuses the step if the counts of messages
/// disagree, if the broker did not acknowledge a message, if the firehose reports a fault, or if
/// the consumer still stores rows after [`DRAINED_WITHIN`].
fn verify(trial: &mut Trial, servers: &Servers, sent: &Sent) -> Result<()> {
    let mut settled = true;
    let (lost, duplicates) = match (&sent.manifest, &servers.sink) {
        (Some(manifest), None) => {
            let mut verdict = servers.verify(manifest, STORED_WITHIN)?;
            if verdict.lost > 0 {
                settled = wait_until_quiet(|| servers.stored(), |_| false, QUIET);
                verdict = servers.verify(manifest, Duration::ZERO)?;
            }
            trial.freshness_ms = verdict.freshness_ms;
            (verdict.lost, verdict.duplicates_in_fixes + verdict.never_sent)
        }
        (_, Some(sink)) => {
            settled =
                wait_until_quiet(|| servers.stored(), |stored| stored >= sent.messages, QUIET);
            let verdict = sink.tally().compare(&sent.by_driver);
            (verdict.lost, verdict.duplicates + verdict.never_sent)
        }
        (None, None) => bail!("the fleet has no manifest"),
    };
    if let Some(manifest) = &sent.manifest {
        check_count(trial, servers, manifest)?;
    }
    if let Some(firehose) = &servers.firehose {
        firehose.faults().into_iter().for_each(|fault| trial.refuse(false, fault));
        if firehose.sent() != firehose.assigned() {
            trial.refuse(
                false,
                format!(
                    "the firehose assigned {} messages, but wrote {}",
                    firehose.assigned(),
                    firehose.sent()
                ),
            );
        }
    }
    if !settled {
        trial.refuse(
            false,
            format!("the consumer still stored rows {} s after the load", DRAINED_WITHIN.as_secs()),
        );
    }
    (trial.lost, trial.duplicates) = (Some(lost), Some(duplicates));
    Ok(())
}
