//! Whether this process leaves its group when it is told to go, as `shutdown.leave` says.

use std::net::IpAddr;
use std::time::Duration;

use tracing::{info, warn};

use crate::config::{Config, LeaveGroup, Shutdown};
use crate::peers::ask::{Peer, ask};
use crate::peers::decision::Decision;
use crate::peers::standing::Standing;
use crate::session::events::Leave;

/// For a command, which nobody waits to kill: a member that is busy is no member that has gone.
pub(super) const ASK_WITHIN: Duration = Duration::from_secs(10);
/// This share of the grace is for asking. Flushing to ClickHouse has a half after it, and the spool the rest.
const ASKING_SHARE: u32 = 3;

/// What will happen, while there is time to change it.
pub(super) fn announce(config: &Config) {
    let Shutdown { leave, peers, .. } = &config.shutdown;
    match leave {
        LeaveGroup::Auto if peers.is_empty() => info!(
            "shutdown.leave = \"auto\" without shutdown.peers: at a shutdown the session is kept, as with false"
        ),
        LeaveGroup::Auto if config.http.listen.ip().is_loopback() && peers.iter().any(is_elsewhere) => warn!(
            listen = %config.http.listen,
            "shutdown.peers are on other machines, and cannot ask us: let http.listen be an address that they reach"
        ),
        LeaveGroup::Auto | LeaveGroup::Always | LeaveGroup::Never => {}
    }
}

fn is_elsewhere(peer: &Peer) -> bool {
    match peer.host.parse::<IpAddr>() {
        Ok(address) => !address.is_loopback(),
        Err(_) => peer.host != "localhost",
    }
}

/// For a process that is told to go, and has [said so](crate::peers::standing::Member::leaves).
pub(super) async fn decide(shutdown: &Shutdown, ours: Standing) -> Leave {
    let (leave, why) = match shutdown.leave {
        LeaveGroup::Always => (Leave::Unsubscribe, "true: unsubscribing".to_owned()),
        LeaveGroup::Never => (Leave::KeepSession, "false: keeping the session".to_owned()),
        LeaveGroup::Auto if shutdown.peers.is_empty() => {
            (Leave::KeepSession, "\"auto\" without shutdown.peers: keeping the session".to_owned())
        }
        LeaveGroup::Auto => {
            let decision = ask(&shutdown.peers, ours, shutdown.grace / ASKING_SHARE).await;
            let leave = match decision {
                Decision::Leave { .. } => Leave::Unsubscribe,
                Decision::Keep { .. } => Leave::KeepSession,
            };
            (leave, format!("\"auto\": {decision}"))
        }
    };
    info!("shutdown.leave = {why}");
    leave
}
