//! Counts the members of the group, for `batch.members_age_max`.
//!
//! A member resolves `shutdown.peers` and counts their addresses; it asks no peer. So the cost
//! grows with the number of members, not with its square. An address without a process counts too:
//! then a batch waits longer than necessary, within its bound.

use tokio::sync::watch;

use milepost_core::peers::Peer;
use milepost_tls::{Address, nodes};

/// Publishes the number of members at once and whenever it changes. Returns once no receiver is
/// left, or if the task that resolves the names has ended.
pub(super) async fn count(peers: Vec<Peer>, members: watch::Sender<u32>) {
    let address = |Peer { host, port }: Peer| Address { host, port, ip: None };
    let (mut found, _resolver) = nodes::watch(peers.into_iter().map(address).collect()).await;
    loop {
        let count = u32::try_from(found.borrow_and_update().len()).unwrap_or(u32::MAX).max(1);
        members.send_if_modified(|last| std::mem::replace(last, count) != count);
        tokio::select! {
            changed = found.changed() => if changed.is_err() { return },
            () = members.closed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn peer(host: &str, port: u16) -> Peer {
        Peer { host: host.to_owned(), port }
    }

    #[tokio::test]
    async fn each_address_counts_once() {
        let peers = [("127.0.0.1", 1), ("127.0.0.1", 1), ("127.0.0.1", 2)];
        let peers = peers.map(|(host, port)| peer(host, port)).to_vec();
        let (sender, receiver) = watch::channel(1);
        let _ = timeout(Duration::from_millis(200), count(peers, sender)).await;
        assert_eq!(*receiver.borrow(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn counter_publishes_and_ends_with_its_receiver() {
        let (sender, mut receiver) = watch::channel(1);
        let counter = tokio::spawn(count(vec![peer("127.0.0.1", 1), peer("127.0.0.1", 2)], sender));
        assert_eq!(*receiver.wait_for(|members| *members > 1).await.unwrap(), 2);
        drop(receiver);
        counter.await.unwrap();
    }
}
