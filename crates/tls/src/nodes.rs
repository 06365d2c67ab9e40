//! The addresses of the broker's nodes: the addresses in `mqtt.url`. A host name with several
//! addresses stands for several nodes.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn};
use tokio::time::sleep;

use crate::Address;

/// Interval at which host names are resolved again, because nodes are added and removed.
const RESOLVED_EVERY: Duration = Duration::from_secs(10);

/// Returns a receiver of the addresses, which is notified of each change, and the task that
/// resolves them. While the receiver exists, the task ends only if it panics or its runtime stops.
pub async fn watch(nodes: Vec<Address>) -> (watch::Receiver<Vec<Address>>, JoinHandle<()>) {
    let (sender, mut receiver) = watch::channel(resolve(&nodes, &[]).await);
    receiver.mark_changed();
    let resolver = spawn(async move {
        while !sender.is_closed() {
            sleep(RESOLVED_EVERY).await;
            let last = sender.borrow().clone();
            let addresses = resolve(&nodes, &last).await;
            sender.send_if_modified(|last| {
                let has_changed = *last != addresses;
                *last = addresses;
                has_changed
            });
        }
    });
    (receiver, resolver)
}

/// Resolves the names of the nodes. A name that does not resolve keeps its addresses from `last`;
/// if `last` has no address for the name, the name itself is returned. An address that two names
/// share is returned once.
pub async fn resolve(nodes: &[Address], last: &[Address]) -> Vec<Address> {
    // Resolve all names at once: if the resolver does not answer, its timeout passes only once.
    let lookups: Vec<_> =
        nodes.iter().cloned().map(|node| spawn(async move { node.all().await })).collect();
    let mut addresses = Vec::<Address>::new();
    for (node, lookup) in nodes.iter().zip(lookups) {
        let is_of_node =
            |address: &&Address| (&address.host, address.port) == (&node.host, node.port);
        let mut all = match lookup.await.ok().flatten() {
            Some(all) => all,
            None => last.iter().filter(is_of_node).cloned().collect(),
        };
        if all.is_empty() {
            all.push(node.clone());
        }
        let is_new = |address: &Address| {
            addresses.iter().all(|other| other.to_string() != address.to_string())
        };
        all.retain(is_new);
        addresses.append(&mut all);
    }
    addresses
}
