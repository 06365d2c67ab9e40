//! Decides at SIGTERM, according to `shutdown.leave`, whether this process unsubscribes from its
//! group or keeps its sessions.

use std::net::IpAddr;

use tracing::{info, warn};

use milepost_config::{Config, LeaveGroup, Shutdown};
use milepost_core::peers::Peer;
use milepost_core::peers::decision::Decision;
use milepost_core::peers::member::MemberStatus;
use milepost_core::session::events::Leave;
use milepost_observe::peers::decide_by_peers;

/// The timeout for asking the peers is the grace period divided by this number. Flushing to
/// ClickHouse then gets half of the grace period, and the spool the last sixth.
const ASK_TIMEOUT_DIVISOR: u32 = 3;

/// Logs at start if `shutdown.leave = "auto"` cannot work: no peers are configured, or the peers
/// cannot reach this member.
pub(super) fn log_if_auto_cannot_work(config: &Config) {
    let Shutdown { leave, peers, .. } = &config.shutdown;
    match leave {
        LeaveGroup::Auto if peers.is_empty() => info!(
            "shutdown.leave = \"auto\" needs shutdown.peers, which is not set: a shutdown keeps \
             the session, as with shutdown.leave = false"
        ),
        LeaveGroup::Auto
            if config.http.listen.ip().is_loopback() && peers.iter().any(is_on_another_machine) =>
        {
            warn!(
                listen = %config.http.listen,
                "shutdown.peers are on other machines and cannot reach http.listen: \
                 set http.listen to an address that they can reach"
            )
        }
        LeaveGroup::Auto | LeaveGroup::Always | LeaveGroup::Never => {}
    }
}

fn is_on_another_machine(peer: &Peer) -> bool {
    match peer.host.parse::<IpAddr>() {
        Ok(address) => !address.is_loopback(),
        Err(_) => peer.host != "localhost",
    }
}

/// Decides at SIGTERM whether the sessions are kept. Call it after
/// [`set_leaving`](milepost_core::peers::member::Member::set_leaving), so that no peer counts on
/// this member.
///
/// The second value is true if the decision to keep the sessions is uncertain: no peer is known to
/// stay, but a peer did not answer or is not subscribed yet.
///
/// A kept session queues its share of the messages until `mqtt.session_expiry`; until then, a
/// process or `milepost drain` can consume them. If neither does, these messages are lost.
/// Unsubscribing could lose more: if all members unsubscribed, the broker would drop every message.
pub(super) async fn decide(config: &Config, ours: MemberStatus) -> (Leave, bool) {
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
            let decision = decide_by_peers(peers, ours, *grace / ASK_TIMEOUT_DIVISOR).await;
            let (leave, uncertain) = match decision {
                Decision::Leave { .. } => (Leave::Unsubscribe, false),
                Decision::Keep { certain, .. } => (Leave::KeepSession, !certain),
            };
            (leave, uncertain, format!("\"auto\": {decision}"))
        }
    };
    if uncertain {
        warn!(
            "shutdown.leave = {why}. The broker queues this member's share until \
             mqtt.session_expiry: start this process again before that, or run \
             `milepost drain --client-id {}`",
            config.mqtt.client_id
        );
    } else {
        info!("shutdown.leave = {why}");
    }
    (leave, uncertain)
}
