//! Events of the previous process that are older than the replayed time, and that a channel did not
//! accept.
//!
//! Guarantee: each such event that was written within two days is resumed, or counted as dropped
//! and logged. Exceptions: the count fails, which is logged; or an event for MQTT became known
//! before the broker accepted its very first event, perhaps because `events.topic` was not set
//! then.

use std::collections::BTreeMap;

use tracing::warn;

use super::deliver::Channel;
use super::status::Status;
use crate::watch::Kind;
use crate::watch::store::{DeliveredEvent, EventStore};
use milepost_clickhouse::Error;
use milepost_core::error_chain;

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
    /// Reads the events that became known by this time. Events that cannot be counted are not
    /// reported.
    ///
    /// # Errors
    /// The events to publish could not be read.
    pub(super) async fn read(
        store: &EventStore<'_>,
        known_at: i64,
        (has_mqtt, has_webhook): (bool, bool),
    ) -> Result<Self, Error> {
        let mut leftovers = Self::default();
        if has_mqtt && let Some(since) = store.first_published_at().await? {
            let known = (since, known_at);
            leftovers.unpublished = store.unpublished_without_state_in(known).await?;
            leftovers.mqtt = counted(Channel::Mqtt, store.unpublished_in(known).await);
            // Subtract the events in `unpublished`, which MQTT still gets.
            for delivered in &leftovers.unpublished {
                if let Some(events) = leftovers.mqtt.get_mut(delivered.event.kind.name()) {
                    *events = events.saturating_sub(1);
                }
            }
        }
        if has_webhook {
            leftovers.webhook = counted(Channel::Webhook, store.unposted_before(known_at).await);
        }
        Ok(leftovers)
    }

    /// Counts the events that a channel does not get as dropped by that channel, and logs their
    /// numbers. `outdated`: further events that MQTT does not get, because the broker has a newer
    /// state of their topic.
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
                "this start leaves out events that the channel never accepted: they are only in \
                 the table"
            );
            status.dropped.with_label_values(&[to]).inc_by(events);
        }
    }
}

/// Returns the counted events. Logs the error if they could not be counted.
fn counted(channel: Channel, count: Result<Kinds, Error>) -> Kinds {
    count.unwrap_or_else(|error| {
        warn!(
            to = channel.name(),
            why = error_chain(&error),
            "this start could not count the events that it leaves out: \
             milepost_events_dropped_total lacks them"
        );
        Kinds::new()
    })
}

/// Returns the numbers as `jump: 2, left: 1`.
fn listed(kinds: &Kinds) -> String {
    let present = kinds.iter().filter(|(_, events)| **events > 0);
    present.map(|(kind, events)| format!("{kind}: {events}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use milepost_clickhouse::ClickHouse;
    use milepost_config::Config;

    /// An installation that had only a webhook may set `events.topic` now.
    #[tokio::test]
    async fn old_events_are_not_published_if_the_broker_never_accepted_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut stream = listener.accept().await.unwrap().0;
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            // No row; one column t of the type Int64.
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\
                           Connection: close\r\n\r\n\x01\x01t\x05Int64";
            stream.write_all(answer).await.unwrap();
        });
        let config = Config::parse(&format!("clickhouse.url = '{url}'")).unwrap();
        let clickhouse = ClickHouse::new(&config.clickhouse).unwrap();
        let leftovers = Leftovers::read(&EventStore(&clickhouse), 0, (true, false)).await.unwrap();
        assert!(leftovers.unpublished.is_empty() && leftovers.mqtt.is_empty());
        server.await.unwrap();
    }

    /// The count may need more memory than the server allows.
    #[tokio::test]
    async fn failed_count_does_not_prevent_the_start() {
        let config = Config::parse("clickhouse.url = 'http://127.0.0.1:1'").unwrap();
        let clickhouse = ClickHouse::new(&config.clickhouse).unwrap();
        let leftovers = Leftovers::read(&EventStore(&clickhouse), 0, (false, true)).await;
        assert!(leftovers.unwrap().webhook.is_empty());
    }
}
