//! The command line of `milepost check`, and the preflight: the checks that run while the consumer
//! starts.

use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{info, warn};

use milepost_command::process::{as_bad_usage, put, success_if, without_logs};
use milepost_command::{Companion, Run, StartupContext};
use milepost_config::Config;
use milepost_core::delivery::events::Schema;
use milepost_observe::now_ms;

use crate::all;
use crate::report::{Level, Report};

/// `milepost check`, as `src/cli.rs` lists it.
pub const COMMANDS: &[Companion] = &[Companion::new::<Arguments>().with_startup_task(preflight)];

/// Interval at which the preflight asks whether a session is subscribed. The preflight checks the
/// broker only once a session is subscribed: an earlier check would only repeat the sessions' own
/// errors.
const SUBSCRIBED_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Check the broker, ClickHouse and the disk, and name each setting to change; exit 1 on errors
#[derive(Parser)]
#[command(name = "check")]
struct Arguments {
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
    /// Also publish a message to this topic and wait for it, such as drivers/ID/gps-check; the
    /// topic must not match a source
    #[arg(long)]
    probe_topic: Option<String>,
}

impl Run for Arguments {
    fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let report = as_bad_usage(without_logs(self.check(&config)))?;
        let text = if self.json { report.json() } else { report.to_string() };
        put(&text, success_if(!report.has_errors()))
    }
}

impl Arguments {
    /// Runs all checks. Fails if `--probe-topic` is not a usable topic.
    async fn check(&self, config: &Config) -> anyhow::Result<Report> {
        let topic = self.probe_topic.as_deref();
        if let Some(why) = topic.and_then(|topic| all::unusable_probe(config, topic)) {
            bail!("--probe-topic: {why}");
        }
        Ok(all::check_all(config, topic, now_ms).await)
    }
}

/// Logs warnings about foreseeable problems while the consumer starts, without delaying it.
fn preflight(context: StartupContext) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(log_preflight(context))
}

async fn log_preflight(StartupContext { config, mut server, metrics }: StartupContext) {
    let spool_config = config.clone();
    // Check the spool on a thread of its own, so that a hung disk does not delay the other checks.
    let spool_check = async {
        if let Ok(report) = spawn_blocking(move || all::spool_at_start(&spool_config)).await {
            log_findings(&report);
        }
    };
    let server_check = async {
        if server.wait_for(|server| server.schema == Schema::Ready).await.is_ok() {
            log_findings(&all::server_at_start(&config, now_ms).await);
        }
    };
    let broker_check = async {
        while !metrics.is_subscribed() {
            sleep(SUBSCRIBED_POLL_INTERVAL).await;
        }
        let report = all::broker_at_start(&config).await;
        // Log the good findings, too: for a cluster, one of them explains how to test the strategy.
        for finding in report.findings().iter().filter(|finding| finding.level == Level::Ok) {
            info!(check = finding.subject, "{}", finding.found);
        }
        log_findings(&report);
    };
    tokio::join!(spool_check, server_check, broker_check);
}

fn log_findings(report: &Report) {
    for finding in report.findings() {
        match finding.level {
            Level::Ok => {}
            Level::Warning | Level::Error => {
                let advice = finding.advice.as_deref().unwrap_or_default();
                warn!(check = finding.subject, advice, "{}", finding.found);
            }
        }
    }
}
