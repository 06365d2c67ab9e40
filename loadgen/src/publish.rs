//! Publishes a fleet's fixes over MQTT 5 at a rate, and counts exactly what the broker
//! acknowledged.
//!
//! Guarantee: at QoS 1, the fleet sends every message again until the broker acknowledges it: after
//! each reconnect, and after PUBACK 0x10 (no subscriber). The manifest lists the fixes that were
//! never acknowledged, and the rate that was reached. If a starting broker refuses a packet (EMQX:
//! CONNACK 0x87, 0x88, 0x89, PUBACK 0x87), the fleet counts the refusal, and sends the packet again
//! for a limited time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::manifest::Manifest;
pub use crate::plan::{Plan, Progress};
use crate::publisher::Publisher;

/// The fleet ended before it had sent all messages of the plan, because the broker refused it or
/// was unreachable, or because the operator stopped it.
#[derive(Debug, thiserror::Error)]
#[error("{cause:#}")]
pub struct EndedEarly {
    /// Record of the fixes sent and acknowledged until then.
    pub manifest: Manifest,
    cause: anyhow::Error,
}

/// Sends all messages of the plan. Fails with [`EndedEarly`] if the broker refuses the fleet or
/// stays unreachable, or if [`Progress::stopped`] is set.
pub async fn run(plan: &Plan, progress: Arc<Progress>) -> Result<Manifest> {
    ensure!(
        plan.drivers > 0 && plan.connections > 0 && plan.rate > 0.0,
        "drivers, connections and rate must be above 0"
    );
    let connections = plan.connections.min(plan.drivers);
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for index in 0..connections {
        let publisher = Publisher::new(index, connections, plan, &progress)?;
        tasks.spawn(publisher.run());
        if index % 100 == 99 {
            // Open the connections slowly: a broker queues only few unaccepted connections.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    let mut manifest = Manifest {
        run: plan.run.clone(),
        format: plan.format,
        qos: plan.qos,
        last_seq: vec![0; plan.drivers as usize],
        ..Manifest::default()
    };
    let (mut last_sent_at, mut failure) = (began, None);
    while let Some(joined) = tasks.join_next().await {
        let (publisher, outcome) = joined.context("a publisher panicked")?;
        if let Err(cause) = outcome {
            // End the other connections as well; the manifest records the fixes that they sent.
            progress.stopped.store(true, Ordering::Relaxed);
            failure.get_or_insert(cause);
        }
        for n in publisher.fleet.numbers() {
            manifest.last_seq[n as usize] = publisher.fleet.last_seq(n);
        }
        manifest.unacked.extend(publisher.unacknowledged());
        manifest.messages += publisher.sent;
        manifest.duplicates += publisher.duplicates;
        manifest.no_subscriber += publisher.no_subscriber;
        manifest.starting += publisher.starting;
        last_sent_at = last_sent_at.max(publisher.last_sent_at.unwrap_or(began));
    }
    manifest.unacked.sort_unstable();
    manifest.unacked.dedup();
    manifest.rate_held = manifest.messages as f64 / (last_sent_at - began).as_secs_f64().max(1e-3);
    if failure.is_none() && progress.stopped.load(Ordering::Relaxed) {
        failure = Some(anyhow!("stopped before everything was sent"));
    }
    match failure {
        Some(cause) => Err(EndedEarly { manifest, cause }.into()),
        None => Ok(manifest),
    }
}

/// Sets [`Progress::stopped`] at SIGINT or SIGTERM.
async fn stop_on_signal(progress: Arc<Progress>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    progress.stopped.store(true, Ordering::Relaxed);
    Ok(())
}

/// Publishes the plan with a progress bar.
pub async fn run_with_bar(plan: &Plan) -> Result<Manifest> {
    let progress = Arc::new(Progress::default());
    let style = "{elapsed_precise} [{bar:40}] {pos}/{len} messages  {per_sec}";
    let bar = ProgressBar::new(plan.messages)
        .with_style(ProgressStyle::with_template(style)?.progress_chars("=> "));
    let update_bar = {
        let (bar, progress) = (bar.clone(), Arc::clone(&progress));
        async move {
            loop {
                bar.set_position(progress.sent.load(Ordering::Relaxed));
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    };
    let signals = tokio::spawn(stop_on_signal(Arc::clone(&progress)));
    let manifest = tokio::select! {
        manifest = run(plan, progress) => manifest?,
        () = update_bar => bail!("the progress bar ended"),
    };
    signals.abort();
    bar.finish_and_clear();
    if manifest.rate_held < plan.rate * 0.99 {
        eprintln!(
            "loadgen: held {:.0} of {:.0} messages a second: the broker or this machine is at its \
             limit",
            manifest.rate_held, plan.rate
        );
    }
    if manifest.no_subscriber > 0 {
        eprintln!(
            "loadgen: {} times, the broker dropped a message because no client was subscribed, and \
             loadgen sent it again (check that milepost is subscribed)",
            manifest.no_subscriber
        );
    }
    if manifest.starting > 0 {
        eprintln!(
            "loadgen: {} times, the broker refused a message or a connection while it was \
             starting, and loadgen tried again",
            manifest.starting
        );
    }
    Ok(manifest)
}
