//! Shared subscriptions: one member of the group gets each message, in turn.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use rmqtt::context::ServerContext;
use rmqtt::subscribe::SharedSubscription;
use rmqtt::types::{
    ClientId, Id, IsOnline, NodeId, SharedGroup, SubscriptionIdentifier, SubscriptionOptions, TopicName,
};

/// Puts the round robin in place of rmqtt's default, which supports no shared subscriptions.
pub async fn install(scx: &ServerContext) {
    *scx.extends.shared_subscription_mut().await = Box::new(RoundRobin::default());
}

/// One count for each group: with one count for all, two groups that see the same messages would
/// each always pick the same member.
#[derive(Default)]
struct RoundRobin(Mutex<HashMap<SharedGroup, usize>>);

impl RoundRobin {
    fn next(&self, group: &SharedGroup) -> usize {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(group.clone()).or_default();
        *count = count.wrapping_add(1);
        *count
    }
}

/// One member as rmqtt gives it.
type Member = (NodeId, ClientId, SubscriptionOptions, Option<Vec<SubscriptionIdentifier>>, Option<IsOnline>);

#[async_trait]
impl SharedSubscription for RoundRobin {
    fn is_supported(&self) -> bool {
        true
    }

    /// An offline member keeps its share while its session lasts, as with EMQX. One whose session
    /// is gone, with the subscription about to be, is passed over: rmqtt would drop the message.
    async fn choice(
        &self,
        scx: &ServerContext,
        group: &SharedGroup,
        _publisher: &Id,
        _topic: &TopicName,
        members: &[Member],
    ) -> Option<(usize, IsOnline)> {
        let start = self.next(group);
        let shared = scx.extends.shared().await;
        (0..members.len())
            .map(|i| (start.wrapping_add(i)) % members.len())
            .find(|i| shared.exist(&members[*i].1))
            .map(|i| (i, members[i].4.unwrap_or(false)))
    }
}
