//! Events of the previous process that are older than the replayed time, and that a channel did not
//! accept.
//!
//! Guarantee: each of them that was written within two days is resumed, or counted as dropped and
//! logged.

use std::collections::BTreeMap;

use tracing::warn;

use super::deliver::Channel;
use super::status::Status;
use crate::watch::Kind;
use crate::watch::store::{DeliveredEvent, EventStore};
use milepost_clickhouse::Error;

/// Numbers of events, by kind.
type Kinds = BTreeMap<String, u64>;

/// The old events that the channels have not accepted; see the module.
#[derive(Default)]
pub(super) struct Leftovers {
    /// Events that MQTT is still to publish: those without a state, oldest first.
    pub(super) unpublished: Vec<DeliveredEvent>,
    /// Events that MQTT does not get.
    mqtt: Kinds,
    /// Events that the webhook does not get.
    webhook: Kinds,
}

impl Leftovers {
    /// Reads the events that became known by this time.
    pub(super) async fn read(
        store: &EventStore<'_>,
        known_at: i64,
        (has_mqtt, has_webhook): (bool, bool),
    ) -> Result<Self, Error> {
        let mut leftovers = Self::default();
        if has_mqtt {
            leftovers.unpublished = store.unpublished_without_state_before(known_at).await?;
            leftovers.mqtt = store.unpublished_before(known_at).await?;
            for delivered in &leftovers.unpublished {
                if let Some(events) = leftovers.mqtt.get_mut(delivered.event.kind.name()) {
                    *events = events.saturating_sub(1);
                }
            }
        }
        if has_webhook {
            leftovers.webhook = store.unposted_before(known_at).await?;
        }
        Ok(leftovers)
    }

    /// Counts the events that no channel gets as dropped, and logs them. `outdated`: further events
    /// that MQTT does not get, because the broker has a newer state of their topic.
    pub(super) fn report(mut self, outdated: &[Kind], status: &Status) {
        for kind in outdated {
            *self.mqtt.entry(kind.name().to_owned()).or_default() += 1;
        }
        let channels = [
            (
                Channel::Mqtt,
                &self.mqtt,
                "a newer event of the same state takes their place, or too many waited",
            ),
            (Channel::Webhook, &self.webhook, "they are older than a quarter of an hour"),
        ];
        for (channel, kinds, why) in channels {
            let (to, events) = (channel.name(), kinds.values().sum::<u64>());
            if events == 0 {
                continue;
            }
            warn!(
                to,
                events,
                kinds = listed(kinds),
                why,
                "this start leaves out events that the channel never accepted: they are only in the table"
            );
            status.dropped.with_label_values(&[to]).inc_by(events);
        }
    }
}

/// Returns the numbers as `jump: 2, left: 1`.
fn listed(kinds: &Kinds) -> String {
    let present = kinds.iter().filter(|(_, events)| **events > 0);
    present.map(|(kind, events)| format!("{kind}: {events}")).collect::<Vec<_>>().join(", ")
}
