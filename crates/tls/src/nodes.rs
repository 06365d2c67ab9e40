//! The addresses of the broker's nodes: those in `mqtt.url`, and of a name with several addresses
//! each of them.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn};
use tokio::time::sleep;

use crate::Address;

/// How often names are resolved: nodes come and go.
const RESOLVED_EVERY: Duration = Duration::from_secs(10);

/// The addresses now, and whenever they change, with the task that resolves them: it ends only if
/// it dies. Needs a runtime that lives as long as they are wanted.
pub async fn watch(nodes: Vec<Address>) -> (watch::Receiver<Vec<Address>>, JoinHandle<()>) {
    let (sender, mut receiver) = watch::channel(resolve(&nodes, &[]).await);
    receiver.mark_changed();
    let resolver = spawn(async move {
        while !sender.is_closed() {
            sleep(RESOLVED_EVERY).await;
            let last = sender.borrow().clone();
            let found = resolve(&nodes, &last).await;
            sender.send_if_modified(|last| {
                let has_changed = *last != found;
                *last = found;
                has_changed
            });
        }
    });
    (receiver, resolver)
}

/// A name that is not resolved now keeps its last addresses. Two names can have the same address.
pub async fn resolve(nodes: &[Address], last: &[Address]) -> Vec<Address> {
    // Side by side: a resolver that is away costs its time-out once.
    let asked: Vec<_> =
        nodes.iter().cloned().map(|node| spawn(async move { node.all().await })).collect();
    let mut found = Vec::<Address>::new();
    for (node, asked) in nodes.iter().zip(asked) {
        let same = |known: &&Address| known.host == node.host && known.port == node.port;
        let mut all = match asked.await.ok().flatten() {
            Some(all) => all,
            None => last.iter().filter(same).cloned().collect(),
        };
        if all.is_empty() {
            all.push(node.clone());
        }
        let is_new =
            |address: &Address| found.iter().all(|known| known.to_string() != address.to_string());
        all.retain(is_new);
        found.append(&mut all);
    }
    found
}
