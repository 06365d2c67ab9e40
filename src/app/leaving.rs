//! Decides whether this process leaves its group at SIGTERM, by `shutdown.leave`.

use std::net::IpAddr;

use tracing::{info, warn};

use milepost_config::{Config, LeaveGroup, Shutdown};
use milepost_core::peers::Peer;
use milepost_core::peers::decision::Decision;
use milepost_core::peers::standing::Standing;
use milepost_core::session::events::Leave;
use milepost_observe::ask::ask;

/// Share of the grace period for asking peers: one third. Half is for flushing to ClickHouse, the
/// rest for the spool.
const ASKING_SHARE: u32 = 3;

/// Logs at start what will happen at SIGTERM.
pub(super) fn announce(config: &Config) {
    let Shutdown { leave, peers, .. } = &config.shutdown;
    match leave {
        LeaveGroup::Auto if peers.is_empty() => info!(
            "shutdown.leave = \"auto\" without shutdown.peers: a shutdown keeps the session, as with false"
        ),
        LeaveGroup::Auto
            if config.http.listen.ip().is_loopback() && peers.iter().any(is_elsewhere) =>
        {
            warn!(
                listen = %config.http.listen,
                "shutdown.peers are on other machines and cannot reach http.listen: set it to an address that they can reach"
            )
        }
        LeaveGroup::Auto | LeaveGroup::Always | LeaveGroup::Never => {}
    }
}

fn is_elsewhere(peer: &Peer) -> bool {
    match peer.host.parse::<IpAddr>() {
        Ok(address) => !address.is_loopback(),
        Err(_) => peer.host != "localhost",
    }
}

/// Decides at SIGTERM whether the sessions are kept, after the member has [announced that it
/// leaves](milepost_core::peers::standing::Member::set_leaving). Also returns whether they are kept
/// because a peer did not answer: if no process resumes them, the messages that the broker queues
/// for them are lost.
///
/// If peers do not answer, the sessions are kept. If all members unsubscribed, the broker would drop
/// every message; a kept session queues only its share, which a process or `milepost drain` can
/// still consume.
pub(super) async fn decide(config: &Config, ours: Standing) -> (Leave, bool) {
    let Shutdown { leave, peers, grace } = &config.shutdown;
    let (leave, uncertain, why) = match leave {
        LeaveGroup::Always => (Leave::Unsubscribe, false, "true: unsubscribing".to_owned()),
        LeaveGroup::Never => (Leave::KeepSession, false, "false: keeping the session".to_owned()),
        LeaveGroup::Auto if peers.is_empty() => (
            Leave::KeepSession,
            false,
            "\"auto\" without shutdown.peers: keeping the session".to_owned(),
        ),
        LeaveGroup::Auto => {
            let decision = ask(peers, ours, *grace / ASKING_SHARE).await;
            let (leave, uncertain) = match decision {
                Decision::Leave { .. } => (Leave::Unsubscribe, false),
                Decision::Keep { certain, .. } => (Leave::KeepSession, !certain),
            };
            (leave, uncertain, format!("\"auto\": {decision}"))
        }
    };
    if uncertain {
        warn!(
            "shutdown.leave = {why}. The broker queues this member's share until mqtt.session_expiry: start this process again before that, or \
             run `milepost drain --client-id {}`",
            config.mqtt.client_id
        );
    } else {
        info!("shutdown.leave = {why}");
    }
    (leave, uncertain)
}
