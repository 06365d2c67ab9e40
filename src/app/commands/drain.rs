//! `milepost drain`: stores the messages that the broker holds for a member that is gone for good,
//! and ends its sessions.
//!
//! Guarantee: no message is acknowledged before it is durable. A session is first unsubscribed, so
//! that new messages go to the other members of the group. It is ended only when it is empty. If no
//! other member is known to be subscribed, the command fails before it unsubscribes a session,
//! because new messages would be lost; `--leave` overrides this.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::sync::oneshot::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::app::run::{SharedState, Started, delivery_config, start};
use milepost_command::{ASK_TIMEOUT, Outcome, Shown, Signals, tables};
use milepost_config::Config;
use milepost_core::consumer::{Connections, ConsumerTotals};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::policy::{Delivery, DeliveryConfig};
use milepost_core::peers::decision::FollowUp;
use milepost_core::session::events::Leave;
use milepost_observe::metrics::Metrics;
use milepost_observe::peers::{OnUnresolved, query_peers};

/// How long `drain` waits for the last totals of the event loop's thread while that thread ends.
const TOTALS_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which [`session_taken_over`] checks the totals.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct DrainArgs {
    pub client_id: String,
    /// Unsubscribe even if no other member is known to stay.
    pub leave: bool,
    /// Drop a row that is too large to insert. `false`: the broker keeps its message, and all
    /// messages after it.
    pub drop_too_large: bool,
    /// Time after which the drain stops, even if sessions remain.
    pub within: Duration,
}

/// The result of a drain.
#[derive(Debug)]
pub struct Drained {
    totals: ConsumerTotals,
    /// Whether every session that may exist was visited.
    visited_all: bool,
}

impl Drained {
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let ConsumerTotals { sessions, former_sessions, .. } = &self.totals;
        let sessions_remain = !self.visited_all
            || former_sessions.unfinished > 0
            || former_sessions.contested > 0
            || sessions.held_by_broker > 0;
        if sessions_remain { Outcome::DataLeft } else { Outcome::Clean }
    }

    /// Returns how many rows were dropped because they are too large to insert.
    fn rows_dropped(&self) -> u64 {
        self.totals.delivery.dropped + self.totals.delivery.rejects_dropped
    }
}

impl Shown for Drained {
    fn json(&self) -> serde_json::Value {
        let ConsumerTotals { sessions, former_sessions, delivery, .. } = &self.totals;
        serde_json::json!({
            "sessions_found": former_sessions.found,
            "sessions_taken_back": former_sessions.contested,
            "messages_taken": sessions.messages_received,
            "positions_inserted": delivery.inserted,
            "positions_rejected": self.totals.rejected(),
            "rows_dropped": self.rows_dropped(),
            "rows_held": delivery.rows_held,
            "done": self.outcome() == Outcome::Clean,
        })
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConsumerTotals { sessions, former_sessions, delivery, .. } = &self.totals;
        writeln!(f, "sessions found            {:>10}", former_sessions.found)?;
        writeln!(f, "messages taken            {:>10}", sessions.messages_received)?;
        writeln!(f, "positions inserted        {:>10}", delivery.inserted)?;
        writeln!(f, "positions rejected        {:>10}", self.totals.rejected())?;
        writeln!(f, "rows too large, dropped   {:>10}", self.rows_dropped())?;
        match (self.outcome(), self.visited_all) {
            (Outcome::Clean, _) if former_sessions.found == 0 => f.write_str(
                "there is no such session: it has expired, was ended, or the client id never \
                     had one\n",
            ),
            (Outcome::Clean, _) => f.write_str(
                "all sessions are empty and unsubscribed; each has ended, or expires by itself\n",
            ),
            (Outcome::DataLeft, _) if former_sessions.contested > 0 => f.write_str(
                "another client took these sessions over, so a process with this client id is \
                 running: stop it, and run the command again\n",
            ),
            (Outcome::DataLeft, _) if delivery.rows_held > 0 => f.write_str(
                "ClickHouse, or a proxy in front of it, refuses a row as too large, so its \
                 message and all messages after it, of every session, stay with the broker until \
                 mqtt.session_expiry: raise the size limit before that and run the command again, \
                 or drop such rows with --drop-too-large\n",
            ),
            (Outcome::DataLeft, true) => f.write_str(
                "a session still exists: milepost could not reach it, or another process uses it\n",
            ),
            (Outcome::DataLeft, false) => {
                f.write_str("stopped before the end: the broker keeps the remaining sessions\n")
            }
        }
    }
}

/// Empties the sessions of a client id, and ends them.
///
/// # Errors
/// - The member is running.
/// - No other member is known to stay, and `leave` is false.
/// - The tables do not match this binary, or ClickHouse does not answer.
/// - A task ended unexpectedly.
pub async fn drain(mut config: Config, args: DrainArgs) -> Result<Drained> {
    let DrainArgs { client_id, leave, drop_too_large, within } = args;
    let remaining = remaining_member(&config, &client_id).await?;
    match &remaining {
        Ok(member) => info!("{member} stays subscribed and receives new messages"),
        Err(why) if leave => warn!(
            "no other member of the group is known to be subscribed{why}: without one, new \
             messages are lost; {client_id} itself may still be running where milepost could not \
             reach it"
        ),
        Err(why) => bail!(
            "no other member of the group is known to be subscribed{why}: messages published \
             after {client_id} is unsubscribed would be lost. Start a member and name it in \
             shutdown.peers; or pass --leave if you know that one runs"
        ),
    }
    tables::ready(&config).await?;
    config.mqtt.client_id = client_id;
    // With no sessions of its own, the consumer treats all sessions of the client id as former
    // ones: it unsubscribes, empties and ends them.
    config.mqtt.connections = Connections::Fixed(0);
    config.spool = None; // messages that cannot be inserted now stay with the broker
    let delivery = DeliveryConfig { may_drop_rows: drop_too_large, ..delivery_config(&config) };
    let delivery = Delivery::new(delivery, SpoolInventory::default());
    let mut signals = Signals::new()?;
    let shared = SharedState::new(&config);
    let mut tasks = JoinSet::new();
    let Started { mut watcher_task, mut event_loop, leave: leave_sender, .. } =
        start(&config, None, delivery, &shared, &mut tasks)?;
    let why = tokio::select! {
        ended = &mut event_loop => return completed(ended),
        Some(ended) = tasks.join_next() => {
            let task = ended.context("a task panicked")?;
            // The executor ends when the event loop ends. Then the event loop's totals have
            // arrived, or will arrive soon.
            return match timeout(TOTALS_TIMEOUT, event_loop).await {
                Ok(ended) => completed(ended),
                Err(_) => bail!("task `{task}` ended unexpectedly"),
            };
        }
        Some(ended) = watcher_task.join_next() => {
            let error = ended.context("a task panicked")?.unwrap_err();
            bail!("the watcher of ClickHouse ended unexpectedly: {error:#}")
        }
        () = signals.next() => "a signal",
        () = sleep(within) => "the time of --within has passed",
        () = session_taken_over(&shared.metrics) => "another client took a session over",
    };
    warn!("{why}: flushing the messages received");
    leave_sender.send_replace(Some(Leave::KeepSession));
    let totals = match timeout(config.shutdown.grace, event_loop).await {
        Ok(totals) => totals.context("the event loop's thread panicked; see stderr")?,
        Err(_) => shared.metrics.totals(),
    };
    Ok(Drained { totals, visited_all: false })
}

/// Waits until another process takes over one of the sessions. That process consumes the sessions
/// itself, so the drain must stop receiving messages from them.
async fn session_taken_over(metrics: &Metrics) {
    while metrics.totals().former_sessions.contested == 0 {
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns the result once the event loop has ended by itself, because no session is left to visit.
fn completed(ended: Result<ConsumerTotals, RecvError>) -> Result<Drained> {
    let totals = ended.context("the event loop's thread panicked; see stderr")?;
    Ok(Drained { totals, visited_all: true })
}

/// Returns a member that stays subscribed, or why none is known. Asks this host's member and
/// `shutdown.peers`. Fails if the member to be drained answers.
async fn remaining_member(config: &Config, client_id: &str) -> Result<Result<String, String>> {
    let topics = config.mqtt.topics.iter().cloned().collect();
    let (mut remaining, mut running_at, mut why) = (None, None, String::new());
    query_peers(&config.members(), ASK_TIMEOUT, OnUnresolved::Report, |address, answer| {
        match answer {
            Ok(member) if member.name == client_id => running_at = Some(address.to_owned()),
            Ok(member)
                if member.group == config.mqtt.group
                    && member.topics == topics
                    && member.subscribed
                    && !member.leaving =>
            {
                remaining = Some(format!("{} at {address}", member.name));
            }
            Ok(member) => {
                why += &format!(
                    "; {} at {address} has another mqtt.group or other topics, is not subscribed, \
                     or is leaving",
                    member.name
                );
            }
            Err(error) => why += &format!("; {address}: {error}"),
        }
        if running_at.is_some() { FollowUp::Stop } else { FollowUp::Settled }
    })
    .await;
    if let Some(address) = running_at {
        bail!("{client_id} is running at {address}: stop it first");
    }
    let unset = if config.shutdown.peers.is_empty() { " (shutdown.peers is not set)" } else { "" };
    Ok(remaining.ok_or(format!("{unset}{why}")))
}
