//! Counts the members of the group, for `batch.members_age_max`.
//!
//! A member resolves `shutdown.peers` and counts their addresses; it contacts no peer. So the cost
//! grows with the number of members, not with its square. An address at which no process runs
//! counts too: a batch then waits longer than necessary, but at most `batch.members_age_max`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use milepost_core::peers::Peer;
use milepost_observe::peers::resolve;

/// Interval between resolutions of the names. Pods are replaced within about a minute.
const RESOLVE_EVERY: Duration = Duration::from_secs(15);

/// Publishes the number of members at once and whenever it changes. Returns once no receiver is
/// left.
pub(super) async fn count(peers: Vec<Peer>, members: watch::Sender<u32>) {
    let mut addresses = vec![BTreeSet::new(); peers.len()];
    while !members.is_closed() {
        resolve_all(&peers, &mut addresses).await;
        let distinct: BTreeSet<_> = addresses.iter().flatten().collect();
        let count = u32::try_from(distinct.len()).unwrap_or(u32::MAX).max(1);
        members.send_if_modified(|last| std::mem::replace(last, count) != count);
        sleep(RESOLVE_EVERY).await;
    }
}

/// Resolves all names at once. A name that cannot be resolved now keeps its last addresses.
async fn resolve_all(peers: &[Peer], addresses: &mut [BTreeSet<SocketAddr>]) {
    let mut lookups = JoinSet::new();
    for (index, Peer { host, port }) in peers.iter().cloned().enumerate() {
        lookups.spawn(async move { (index, resolve(&host, port).await) });
    }
    while let Some(lookup) = lookups.join_next().await {
        if let Ok((index, Ok(found))) = lookup {
            addresses[index] = found.into_iter().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: &str, port: u16) -> Peer {
        Peer { host: host.to_owned(), port }
    }

    #[tokio::test]
    async fn duplicate_addresses_count_once_and_unresolved_names_stay_counted() {
        let peers = [peer("127.0.0.1", 1), peer("127.0.0.1", 1), peer("127.0.0.1", 2)];
        let peers: Vec<_> = peers.into_iter().chain([peer("no-such-host.invalid", 3)]).collect();
        let mut addresses = vec![BTreeSet::new(); peers.len()];
        addresses[3].insert("10.0.0.1:3".parse().unwrap());
        resolve_all(&peers, &mut addresses).await;
        assert_eq!(addresses.iter().flatten().collect::<BTreeSet<_>>().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn member_count_is_published_until_no_receiver_is_left() {
        let (sender, mut receiver) = watch::channel(1);
        let counter = tokio::spawn(count(vec![peer("127.0.0.1", 1), peer("127.0.0.1", 2)], sender));
        assert_eq!(*receiver.wait_for(|members| *members > 1).await.unwrap(), 2);
        drop(receiver);
        counter.await.unwrap();
    }
}
