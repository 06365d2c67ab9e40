//! Events that wait for the channels. Each channel has a queue. While the queue is full, the newest
//! state of each topic waits beside the queue.
//!
//! Guarantee: the last state of a topic reaches the broker, however many events wait. Events that a
//! full queue drops are counted, and are in the table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tracing::warn;

use super::deliver::{Answer, Channel, DROPPED_LOG_EVERY, Order, QUEUE_MAX, topic};
use super::status::Status;
use crate::watch::store::DeliveredEvent;
use crate::watch::{Event, Kind};
use milepost_core::throttle::Throttle;

/// Number of topics with a state of one driver, without those of fences.
pub(super) const TOPICS_PER_DRIVER: usize = 2;
/// Number of topics with a state of one driver at one fence.
pub(super) const TOPICS_PER_FENCE: usize = 2;

/// The queue of one channel.
pub(super) struct ChannelQueue {
    channel: Channel,
    orders: mpsc::Sender<Order>,
    /// `events.topic` for MQTT; empty for the webhook.
    prefix: String,
    /// States that wait for room in a full queue, by topic. A newer state replaces an older one.
    overflow: BTreeMap<String, Order>,
    dropped_log: Throttle,
}

impl ChannelQueue {
    pub(super) fn new(channel: Channel, prefix: &str, orders: mpsc::Sender<Order>) -> Self {
        let dropped_log = Throttle::every(DROPPED_LOG_EVERY);
        Self { channel, orders, prefix: prefix.to_owned(), overflow: BTreeMap::new(), dropped_log }
    }

    /// Enqueues an order. Returns the order that is dropped, if any: an older state of the topic,
    /// or this order if the queue is full.
    fn push(&mut self, order: Order) -> Option<Order> {
        let state_topic = match (&order, self.channel) {
            (Order::Clear { driver_id, kind, fence }, Channel::Mqtt) => {
                Some(topic(&self.prefix, driver_id, *kind, fence))
            }
            (Order::Publish(event) | Order::Republish(event), Channel::Mqtt)
                if event.kind.changes_state() =>
            {
                Some(topic(&self.prefix, &event.driver_id, event.kind, &event.fence))
            }
            (Order::Publish(_) | Order::Republish(_) | Order::Clear { .. }, _) => None,
        };
        match state_topic {
            Some(state_topic) if !self.overflow.is_empty() => self.keep_beside(state_topic, order),
            _ => {
                // A full queue returns the order with its error.
                let order = self.orders.try_send(order).err()?.into_inner();
                match state_topic {
                    Some(state_topic) => self.keep_beside(state_topic, order),
                    None => Some(order),
                }
            }
        }
    }

    /// Keeps an order beside the full queue. Returns the older order of its topic, if there is one.
    /// Ignores an order that only repeats the older one.
    fn keep_beside(&mut self, topic: String, order: Order) -> Option<Order> {
        if self.overflow.get(&topic).is_some_and(|older| order.repeats(older)) {
            return None;
        }
        self.overflow.insert(topic, order)
    }

    /// Moves states from beside the queue into it while the queue has room.
    fn refill(&mut self) {
        while let (false, Ok(slot)) = (self.overflow.is_empty(), self.orders.try_reserve()) {
            if let Some((_, order)) = self.overflow.pop_first() {
                slot.send(order);
            }
        }
    }

    /// Returns the number of orders in the queue and beside it.
    fn waiting(&self) -> usize {
        self.orders.max_capacity() - self.orders.capacity() + self.overflow.len()
    }
}

/// An event with the channels that have not accepted it yet.
struct Undelivered {
    delivery: DeliveredEvent,
    pending: Vec<Channel>,
}

/// The queues of all channels; see the module.
pub(super) struct Channels {
    queues: Vec<ChannelQueue>,
    /// By id: written events that wait for a channel, and republished states whose acceptance the
    /// table does not record yet.
    undelivered: HashMap<String, Undelivered>,
    /// Events whose rows are to be written again. Either a channel has accepted the event and the
    /// table does not record this yet, or [`Self::renew_waiting`] added the event.
    pub(super) unrecorded: Vec<DeliveredEvent>,
    status: Arc<Status>,
}

impl Channels {
    pub(super) fn new(queues: Vec<ChannelQueue>, status: Arc<Status>) -> Self {
        Self { queues, undelivered: HashMap::new(), unrecorded: Vec::new(), status }
    }

    /// Resumes the deliveries of the previous process. `known`: the events of the last quarter of
    /// an hour, oldest first. `before`: earlier events, oldest first. These are the last state of
    /// each topic, and the events without a state that the broker has not accepted. A channel gets
    /// only events that it has not accepted. The webhook gets those in `known`. MQTT gets those in
    /// `before` and in `known`, except states that are older than the last one that the broker
    /// accepted for their topic: an older state must never replace a newer one. Returns the kind of
    /// each state that is left out for this reason, and that the broker has not accepted.
    pub(super) fn resume(
        &mut self,
        before: Vec<DeliveredEvent>,
        known: Vec<DeliveredEvent>,
    ) -> Vec<Kind> {
        let first_known = before.len();
        let deliveries: Vec<_> = before.into_iter().chain(known).collect();
        let accepted =
            deliveries.iter().enumerate().filter(|(_, delivered)| delivered.mqtt_at.is_some());
        let last_accepted: HashMap<_, _> = accepted
            .filter_map(|(index, delivered)| Some((delivered.event.state()?, index)))
            .collect();
        let has_mqtt = self.queues.iter().any(|queue| queue.channel == Channel::Mqtt);
        let (mut outdated, mut orders) = (Vec::new(), Vec::new());
        for (index, delivered) in deliveries.into_iter().enumerate() {
            let accepted = delivered.event.state().and_then(|state| last_accepted.get(&state));
            let is_newer = accepted.is_none_or(|accepted| index > *accepted);
            if has_mqtt && !is_newer && delivered.mqtt_at.is_none() {
                outdated.push(delivered.event.kind);
            }
            let event = delivered.event.clone();
            let pending = self.register_pending(delivered, |channel| match channel {
                Channel::Mqtt => is_newer,
                Channel::Webhook => index >= first_known,
            });
            orders.extend(pending.into_iter().map(|channel| (channel, event.clone())));
        }
        self.push_resumed(orders);
        outdated
    }

    /// Enqueues events, oldest first. The queue of MQTT gets the events without a state first,
    /// because states can also wait beside it. If the queue lacks room even for the events without
    /// a state, the queue gets the newest of these events, and the older ones are dropped.
    fn push_resumed(&mut self, mut orders: Vec<(Channel, Event)>) {
        let has_state = |event: &Event| event.kind.changes_state();
        orders.sort_by_key(|(channel, event)| *channel == Channel::Mqtt && has_state(event));
        let mqtt = self.queues.iter().find(|queue| queue.channel == Channel::Mqtt);
        let room = mqtt.map_or(0, |queue| queue.orders.capacity());
        let is_droppable =
            |channel: Channel, event: &Event| channel == Channel::Mqtt && !has_state(event);
        let droppable = orders.iter().filter(|(channel, event)| is_droppable(*channel, event));
        let mut excess = droppable.count().saturating_sub(room);
        for (channel, event) in orders {
            if excess > 0 && is_droppable(channel, &event) {
                excess -= 1;
                self.drop_event(channel, &event);
            } else {
                self.push(channel, Order::Publish(event));
            }
        }
    }

    /// Enqueues a newly written event for all channels.
    pub(super) fn enqueue(&mut self, delivered: DeliveredEvent) {
        let event = delivered.event.clone();
        for channel in self.register_pending(delivered, |_| true) {
            self.push(channel, Order::Publish(event.clone()));
        }
    }

    /// Registers that an event waits for those channels that have not accepted it and for which
    /// `gets_event` returns true. Returns these channels.
    fn register_pending(
        &mut self,
        delivered: DeliveredEvent,
        gets_event: impl Fn(Channel) -> bool,
    ) -> Vec<Channel> {
        let is_accepted = |channel| match channel {
            Channel::Mqtt => delivered.mqtt_at.is_some(),
            Channel::Webhook => delivered.webhook_at.is_some(),
        };
        let channels = self.queues.iter().map(|queue| queue.channel);
        let pending: Vec<_> =
            channels.filter(|channel| gets_event(*channel) && !is_accepted(*channel)).collect();
        if !pending.is_empty() {
            let undelivered = Undelivered { pending: pending.clone(), delivery: delivered };
            self.undelivered.insert(undelivered.delivery.event.id(), undelivered);
        }
        pending
    }

    /// Clears the retained messages of an erased driver.
    pub(super) fn clear(&mut self, driver_id: &str, fences: &[String]) {
        let clear = |kind, fence: &str| Order::Clear {
            driver_id: driver_id.to_owned(),
            kind,
            fence: fence.to_owned(),
        };
        // For each topic, name one kind of event that is published there.
        let states: [_; TOPICS_PER_DRIVER] = [clear(Kind::Silent, ""), clear(Kind::Fast, "")];
        let fence_topics = |fence: &String| -> [_; TOPICS_PER_FENCE] {
            [Kind::Left, Kind::Slow].map(|kind| clear(kind, fence))
        };
        let states = states.into_iter().chain(fences.iter().flat_map(fence_topics));
        states.for_each(|order| self.push(Channel::Mqtt, order));
    }

    /// Publishes again, oldest first, the states that the broker may have lost.
    pub(super) fn republish(&mut self, states: Vec<DeliveredEvent>) {
        for delivered in states {
            let event = delivered.event.clone();
            if delivered.mqtt_at.is_none() {
                // Remember the event, so that its acceptance is recorded.
                let unrecorded = Undelivered { delivery: delivered, pending: Vec::new() };
                self.undelivered.entry(event.id()).or_insert(unrecorded);
            }
            self.push(Channel::Mqtt, Order::Republish(event));
        }
    }

    /// Forgets the events of erased drivers.
    pub(super) fn forget(&mut self, is_erased: impl Fn(&str) -> bool) {
        self.unrecorded.retain(|delivered| !is_erased(&delivered.event.driver_id));
        self.undelivered.retain(|_, undelivered| !is_erased(&undelivered.delivery.event.driver_id));
    }

    /// Processes the channels' answers, refills their queues and updates the metrics.
    pub(super) fn drain_answers(&mut self, answers: &mut mpsc::Receiver<Answer>, now: i64) {
        while let Ok(Answer { channel, id, is_accepted, is_repeated }) = answers.try_recv() {
            if !is_repeated {
                let status = &self.status;
                let counted = if is_accepted { &status.delivered } else { &status.dropped };
                counted.with_label_values(&[channel.name()]).inc();
            }
            if let (true, Some(Undelivered { delivery: delivered, .. })) =
                (is_accepted, self.undelivered.get_mut(&id))
            {
                match channel {
                    Channel::Mqtt => delivered.mqtt_at = Some(now),
                    Channel::Webhook => delivered.webhook_at = Some(now),
                }
                self.unrecorded.push(delivered.clone());
            }
            if is_repeated {
                self.forget_finished(&id);
            } else {
                self.finish(channel, &id);
            }
        }
        for queue in &mut self.queues {
            queue.refill();
            // An event that a channel has taken from its queue waits until it is accepted.
            let is_pending =
                |undelivered: &&Undelivered| undelivered.pending.contains(&queue.channel);
            let pending = self.undelivered.values().filter(is_pending).count();
            let waiting = i64::try_from(queue.waiting().max(pending)).unwrap_or(i64::MAX);
            self.status.waiting.with_label_values(&[queue.channel.name()]).set(waiting);
        }
    }

    /// Adds the waiting events that became known before `known_before` to [`Self::unrecorded`], so
    /// that their rows are written again. The next process looks for them in `recent_events`, which
    /// keeps a row for only two days. Leaves out states that wait for MQTT alone, because
    /// `event_states` keeps the newest. Also leaves out events whose fix is older than
    /// `kept_since`, because their rows in `events` have expired. Times are in milliseconds since
    /// 1970.
    pub(super) fn renew_waiting(&mut self, known_before: i64, kept_since: i64) {
        let is_renewed = |undelivered: &&Undelivered| {
            let Undelivered { delivery: DeliveredEvent { event, .. }, pending } = undelivered;
            let has_state = event.kind.changes_state();
            event.known_at < known_before
                && event.ts > kept_since
                && pending.iter().any(|channel| *channel == Channel::Webhook || !has_state)
        };
        let renewed = self.undelivered.values().filter(is_renewed);
        self.unrecorded.extend(renewed.map(|undelivered| undelivered.delivery.clone()));
    }

    /// Enqueues an order for a channel. Does nothing if the channel is not configured.
    fn push(&mut self, channel: Channel, order: Order) {
        let Some(queue) = self.queues.iter_mut().find(|queue| queue.channel == channel) else {
            return;
        };
        match queue.push(order) {
            Some(Order::Publish(event)) => self.drop_event(channel, &event),
            Some(Order::Republish(event)) => self.forget_finished(&event.id()),
            Some(Order::Clear { .. }) | None => {}
        }
    }

    /// Drops an event for which the channel's queue has no room: counts it, and logs it at most
    /// once a minute.
    fn drop_event(&mut self, channel: Channel, event: &Event) {
        let name = channel.name();
        let dropped = self.status.dropped.with_label_values(&[name]);
        let mut queues = self.queues.iter_mut();
        let queue = queues.find(|queue| queue.channel == channel);
        if queue.is_some_and(|queue| queue.dropped_log.allow(Instant::now())) {
            warn!(
                to = name,
                id = event.id(),
                "{QUEUE_MAX} events wait for this channel: of further events, MQTT gets the newest \
                 state of each topic; this process does not deliver the others, which are in the \
                 table"
            );
        }
        dropped.inc();
        self.finish(channel, &event.id());
    }

    /// Removes a channel from the event's pending channels: the channel has accepted the event, or
    /// has dropped it.
    fn finish(&mut self, channel: Channel, id: &str) {
        let Some(undelivered) = self.undelivered.get_mut(id) else { return };
        undelivered.pending.retain(|waiting| *waiting != channel);
        self.forget_finished(id);
    }

    /// Forgets an event if it waits for no channel any more.
    fn forget_finished(&mut self, id: &str) {
        if self.undelivered.get(id).is_some_and(|undelivered| undelivered.pending.is_empty()) {
            self.undelivered.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, ts: i64) -> Event {
        let driver_id = "d".to_owned();
        Event {
            driver_id,
            kind,
            fence: String::new(),
            ts,
            seq: 0,
            lat: 0.0,
            lng: 0.0,
            speed: None,
            known_at: ts,
        }
    }

    #[test]
    fn last_state_of_a_topic_survives_a_full_queue() {
        let (orders, mut queue) = mpsc::channel(2);
        let (answer, mut answers) = mpsc::channel(1);
        let queues = vec![ChannelQueue::new(Channel::Mqtt, "fleet/events", orders)];
        let mut channels = Channels::new(queues, Arc::new(Status::new()));
        let kinds = [
            Kind::Fast,
            Kind::Slow,
            Kind::Silent,
            Kind::Heard,
            Kind::Silent,
            Kind::Heard,
            Kind::Jump,
        ];
        for (kind, ts) in kinds.into_iter().zip(1..) {
            channels.enqueue(DeliveredEvent {
                event: event(kind, ts),
                mqtt_at: None,
                webhook_at: None,
            });
        }
        let mut received = Vec::new();
        while let Ok(Order::Publish(event)) = queue.try_recv() {
            let (channel, id) = (Channel::Mqtt, event.id());
            answer
                .try_send(Answer { channel, id, is_accepted: true, is_repeated: false })
                .expect("the queue of answers is empty");
            received.push((event.kind, event.ts));
            channels.drain_answers(&mut answers, 9);
        }
        // The queue has room for two. Beside it waits only the newest state of the contact topic,
        // and a jump cannot wait there.
        assert_eq!(received, [(Kind::Fast, 1), (Kind::Slow, 2), (Kind::Heard, 6)]);
        assert_eq!((channels.unrecorded.len(), channels.undelivered.len()), (3, 0));
        assert_eq!(channels.status.dropped.with_label_values(&["mqtt"]).get(), 4);
    }

    #[test]
    fn new_process_never_replaces_a_retained_state_by_an_older_one() {
        let (orders, mut queue) = mpsc::channel(9);
        let queues = vec![ChannelQueue::new(Channel::Mqtt, "fleet/events", orders)];
        let mut channels = Channels::new(queues, Arc::new(Status::new()));
        let delivered = |kind, ts, mqtt_at| DeliveredEvent {
            event: event(kind, ts),
            mqtt_at,
            webhook_at: None,
        };
        let before = vec![delivered(Kind::Silent, 1, None), delivered(Kind::Fast, 1, None)];
        let known = vec![
            delivered(Kind::Heard, 2, None),
            delivered(Kind::Silent, 3, Some(9)),
            delivered(Kind::Heard, 4, None),
            delivered(Kind::Silent, 5, None),
            delivered(Kind::Jump, 6, None),
        ];
        // The broker accepted the contact state of time 3, so those of times 1 and 2 are outdated.
        assert_eq!(channels.resume(before, known), [Kind::Silent, Kind::Heard]);
        let mut received = Vec::new();
        while let Ok(Order::Publish(event)) = queue.try_recv() {
            received.push((event.kind, event.ts));
        }
        assert_eq!(
            received,
            [(Kind::Jump, 6), (Kind::Fast, 1), (Kind::Heard, 4), (Kind::Silent, 5)]
        );
    }

    /// States wait beside a full queue; other events would be dropped.
    #[test]
    fn start_with_many_states_enqueues_the_newest_events_without_a_state() {
        let (mqtt, mut queue) = mpsc::channel(3);
        let (webhook, mut posts) = mpsc::channel(9);
        let queues = vec![
            ChannelQueue::new(Channel::Mqtt, "fleet/events", mqtt),
            ChannelQueue::new(Channel::Webhook, "", webhook),
        ];
        let mut channels = Channels::new(queues, Arc::new(Status::new()));
        let delivered =
            |kind, ts| DeliveredEvent { event: event(kind, ts), mqtt_at: None, webhook_at: None };
        let before = vec![delivered(Kind::Jump, 1), delivered(Kind::Fast, 2)];
        let known = [Kind::Jump, Kind::Silent, Kind::OffHours, Kind::Heard, Kind::Jump];
        let known = known.into_iter().zip(3..).map(|(kind, ts)| delivered(kind, ts));
        assert_eq!(channels.resume(before, known.collect()), []);
        let times = |queue: &mut mpsc::Receiver<Order>| {
            let mut times = Vec::new();
            while let Ok(Order::Publish(event)) = queue.try_recv() {
                times.push(event.ts);
            }
            times
        };
        assert_eq!(times(&mut queue), [3, 5, 7]);
        channels.queues[0].refill();
        assert_eq!(times(&mut queue), [6, 2]);
        assert_eq!(times(&mut posts), [3, 4, 5, 6, 7]);
        assert_eq!(channels.status.dropped.with_label_values(&["mqtt"]).get(), 2);
    }

    #[test]
    fn old_event_is_written_again_only_while_it_waits() {
        let (orders, _queue) = mpsc::channel(9);
        let (answer, mut answers) = mpsc::channel(9);
        let queues = vec![ChannelQueue::new(Channel::Mqtt, "fleet/events", orders)];
        let mut channels = Channels::new(queues, Arc::new(Status::new()));
        let delivered =
            |kind, ts| DeliveredEvent { event: event(kind, ts), mqtt_at: None, webhook_at: None };
        let kinds = [Kind::Jump, Kind::Jump, Kind::OffHours, Kind::Left].into_iter().zip(0..);
        for (kind, ts) in kinds.chain([(Kind::Jump, 9)]) {
            channels.enqueue(delivered(kind, ts));
        }
        let (channel, id) = (Channel::Mqtt, event(Kind::OffHours, 2).id());
        answer
            .try_send(Answer { channel, id, is_accepted: false, is_repeated: false })
            .expect("the queue of answers has room");
        channels.drain_answers(&mut answers, 9);
        // Left out: 0, whose fix is too old; 2, which was refused; 3, a state; 9, which is recent.
        channels.renew_waiting(9, 0);
        assert_eq!(channels.unrecorded, [delivered(Kind::Jump, 1)]);
    }

    /// Without the record, a later process would replace the state by an older one.
    #[test]
    fn acceptance_of_a_state_that_is_published_again_is_recorded() {
        let (orders, _queue) = mpsc::channel(9);
        let (answer, mut answers) = mpsc::channel(9);
        let queues = vec![ChannelQueue::new(Channel::Mqtt, "fleet/events", orders)];
        let mut channels = Channels::new(queues, Arc::new(Status::new()));
        let state =
            |kind, mqtt_at| DeliveredEvent { event: event(kind, 1), mqtt_at, webhook_at: Some(5) };
        let states = vec![state(Kind::Fast, None), state(Kind::Silent, None)];
        channels.republish([states, vec![state(Kind::Left, Some(4))]].concat());
        for (kind, is_accepted) in [(Kind::Fast, true), (Kind::Silent, false), (Kind::Left, true)] {
            let (channel, id) = (Channel::Mqtt, event(kind, 1).id());
            let answered = Answer { channel, id, is_accepted, is_repeated: true };
            answer.try_send(answered).expect("the queue of answers has room");
        }
        channels.drain_answers(&mut answers, 9);
        assert_eq!(channels.unrecorded, [state(Kind::Fast, Some(9))]);
        assert!(channels.undelivered.is_empty());
        for counted in [&channels.status.delivered, &channels.status.dropped] {
            assert_eq!(counted.with_label_values(&["mqtt"]).get(), 0);
        }
    }

    #[test]
    fn waiting_event_is_not_counted_as_dropped_when_states_are_republished() {
        let (orders, mut queue) = mpsc::channel(1);
        let queues = vec![ChannelQueue::new(Channel::Mqtt, "fleet/events", orders)];
        let mut channels = Channels::new(queues, Arc::new(Status::new()));
        let delivered =
            |kind| DeliveredEvent { event: event(kind, 1), mqtt_at: None, webhook_at: None };
        for kind in [Kind::Fast, Kind::Silent] {
            channels.enqueue(delivered(kind));
        }
        channels.republish(vec![delivered(Kind::Silent)]);
        assert_eq!(channels.status.dropped.with_label_values(&["mqtt"]).get(), 0);
        assert!(matches!(queue.try_recv(), Ok(Order::Publish(event)) if event.kind == Kind::Fast));
        channels.queues[0].refill();
        assert!(
            matches!(queue.try_recv(), Ok(Order::Publish(event)) if event.kind == Kind::Silent)
        );
    }
}
