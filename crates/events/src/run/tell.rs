//! Events that wait for the channels: a queue for each channel and, behind a full queue, the newest
//! state of each topic.
//!
//! Guarantee: the last state of a topic reaches the broker, however many events wait. Events that a
//! full queue drops are counted, and are in the table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::warn;

use super::deliver::{Answer, Channel, Order, QUEUE_MAX, topic};
use super::status::Status;
use crate::watch::store::Told;
use crate::watch::{Event, Kind};

/// Number of topics that hold a state of a driver, without those of the fences.
pub(super) const STATES: usize = 2;
/// Number of topics of each fence that hold a state of a driver.
pub(super) const STATES_OF_FENCE: usize = 2;

pub(super) struct Line {
    channel: Channel,
    orders: mpsc::Sender<Order>,
    /// `events.topic`, for MQTT.
    prefix: String,
    /// States behind a full queue, by topic. A newer state replaces an older one.
    behind: BTreeMap<String, Order>,
}

impl Line {
    pub(super) fn new(channel: Channel, prefix: &str, orders: mpsc::Sender<Order>) -> Self {
        Self { channel, orders, prefix: prefix.to_owned(), behind: BTreeMap::new() }
    }

    /// Enqueues an order. Returns the order that is dropped for it, if any.
    fn push(&mut self, order: Order) -> Option<Order> {
        let state = match (&order, self.channel) {
            (Order::Clear(topic), Channel::Mqtt) => Some(topic.clone()),
            (Order::Tell(event) | Order::Again(event), Channel::Mqtt)
                if event.kind.is_of_state() =>
            {
                Some(topic(&self.prefix, &event.driver_id, event.kind, &event.fence))
            }
            (Order::Tell(_) | Order::Again(_) | Order::Clear(_), _) => None,
        };
        match state {
            Some(state) if !self.behind.is_empty() => self.behind.insert(state, order),
            _ => {
                let order = self.orders.try_send(order).err()?.into_inner();
                match state {
                    Some(state) => self.behind.insert(state, order),
                    None => Some(order),
                }
            }
        }
    }

    fn refill(&mut self) {
        while let (false, Ok(place)) = (self.behind.is_empty(), self.orders.try_reserve()) {
            if let Some((_, order)) = self.behind.pop_first() {
                place.send(order);
            }
        }
    }

    fn waiting(&self) -> usize {
        self.orders.max_capacity() - self.orders.capacity() + self.behind.len()
    }
}

struct Untold {
    told: Told,
    waits_for: Vec<Channel>,
}

/// The queues of all channels; see the module.
pub(super) struct Telling {
    lines: Vec<Line>,
    /// Events that are written and wait for a channel.
    untold: HashMap<String, Untold>,
    /// Events that a channel accepted, which the table does not record yet.
    pub(super) retold: Vec<Told>,
    status: Arc<Status>,
}

impl Telling {
    pub(super) fn new(lines: Vec<Line>, status: Arc<Status>) -> Self {
        Self { lines, untold: HashMap::new(), retold: Vec::new(), status }
    }

    /// Resumes the deliveries of a former process. `before`: the last state of each topic; `known`:
    /// the events of the replayed time, oldest first. MQTT gets the events that are newer than the
    /// newest one it accepted of a topic, so that no older state replaces it. The webhook gets the
    /// events of the replayed time.
    pub(super) fn take_over(&mut self, before: Vec<Told>, known: Vec<Told>) {
        let first = before.len();
        let left: Vec<_> = before.into_iter().chain(known).collect();
        let taken = left.iter().enumerate().filter(|(_, told)| told.mqtt_at.is_some());
        let taken: HashMap<_, _> =
            taken.filter_map(|(n, told)| Some((told.event.state()?, n))).collect();
        for (n, told) in left.into_iter().enumerate() {
            let newest = told.event.state().and_then(|state| taken.get(&state));
            let is_newer = newest.is_none_or(|newest| n > *newest);
            self.tell_some(told, |channel| match channel {
                Channel::Mqtt => is_newer,
                Channel::Webhook => n >= first,
            });
        }
    }

    /// Enqueues a new event of the table for all channels.
    pub(super) fn tell(&mut self, told: Told) {
        self.tell_some(told, |_| true);
    }

    /// Enqueues an event for those of these channels that have not accepted it.
    fn tell_some(&mut self, told: Told, is_for: impl Fn(Channel) -> bool) {
        let is_taken = |channel| match channel {
            Channel::Mqtt => told.mqtt_at.is_some(),
            Channel::Webhook => told.webhook_at.is_some(),
        };
        let channels = self.lines.iter().map(|line| line.channel);
        let waits_for: Vec<_> =
            channels.filter(|channel| is_for(*channel) && !is_taken(*channel)).collect();
        if waits_for.is_empty() {
            return;
        }
        let event = told.event.clone();
        self.untold.insert(event.id(), Untold { told, waits_for: waits_for.clone() });
        waits_for.into_iter().for_each(|channel| self.order(channel, Order::Tell(event.clone())));
    }

    /// Clears the retained messages of an erased driver.
    pub(super) fn clear(&mut self, driver_id: &str, fences: &[String]) {
        let Some(line) = self.lines.iter().find(|line| line.channel == Channel::Mqtt) else {
            return;
        };
        let topic = |kind, fence: &str| Order::Clear(topic(&line.prefix, driver_id, kind, fence));
        let states: [_; STATES] = [topic(Kind::Silent, ""), topic(Kind::Fast, "")];
        let of_fence = |fence: &String| -> [_; STATES_OF_FENCE] {
            [Kind::Left, Kind::Slow].map(|kind| topic(kind, fence))
        };
        let states: Vec<_> = states.into_iter().chain(fences.iter().flat_map(of_fence)).collect();
        states.into_iter().for_each(|order| self.order(Channel::Mqtt, order));
    }

    /// Publishes states again that the broker may have lost, oldest first.
    pub(super) fn retain_again(&mut self, states: Vec<Told>) {
        states.into_iter().for_each(|told| self.order(Channel::Mqtt, Order::Again(told.event)));
    }

    pub(super) fn forget(&mut self, is_erased: impl Fn(&str) -> bool) {
        self.retold.retain(|told| !is_erased(&told.event.driver_id));
        self.untold.retain(|_, untold| !is_erased(&untold.told.event.driver_id));
    }

    /// Processes the channels' answers, refills their queues and updates the metrics.
    pub(super) fn follow(&mut self, answers: &mut mpsc::Receiver<Answer>, now: i64) {
        while let Ok(Answer { channel, id, is_taken }) = answers.try_recv() {
            let counted = if is_taken { &self.status.delivered } else { &self.status.dropped };
            counted.with_label_values(&[channel.name()]).inc();
            if let (true, Some(Untold { told, .. })) = (is_taken, self.untold.get_mut(&id)) {
                match channel {
                    Channel::Mqtt => told.mqtt_at = Some(now),
                    Channel::Webhook => told.webhook_at = Some(now),
                }
                self.retold.push(told.clone());
            }
            self.finish(channel, &id);
        }
        for line in &mut self.lines {
            line.refill();
            let waiting = i64::try_from(line.waiting()).unwrap_or(i64::MAX);
            self.status.waiting.with_label_values(&[line.channel.name()]).set(waiting);
        }
    }

    fn order(&mut self, channel: Channel, order: Order) {
        let Some(line) = self.lines.iter_mut().find(|line| line.channel == channel) else { return };
        if let Some(Order::Tell(event)) = line.push(order) {
            self.drop_from(channel, &event);
        }
    }

    fn drop_from(&mut self, channel: Channel, event: &Event) {
        let name = channel.name();
        let dropped = self.status.dropped.with_label_values(&[name]);
        if dropped.get() == 0 {
            warn!(
                to = name,
                "{QUEUE_MAX} events wait for this channel: of more, MQTT gets the newest state of each topic, and the rest is in the table alone"
            );
        }
        dropped.inc();
        self.finish(channel, &event.id());
    }

    /// Ends the wait for a channel that has accepted the event, or never will.
    fn finish(&mut self, channel: Channel, id: &str) {
        let Some(untold) = self.untold.get_mut(id) else { return };
        untold.waits_for.retain(|waiting| *waiting != channel);
        if untold.waits_for.is_empty() {
            self.untold.remove(id);
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
    fn last_state_of_a_topic_passes_a_full_queue() {
        let (orders, mut queue) = mpsc::channel(2);
        let (answer, mut answers) = mpsc::channel(1);
        let lines = vec![Line::new(Channel::Mqtt, "fleet/events", orders)];
        let mut telling = Telling::new(lines, Arc::new(Status::new()));
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
            telling.tell(Told { event: event(kind, ts), mqtt_at: None, webhook_at: None });
        }
        let mut came = Vec::new();
        while let Ok(Order::Tell(event)) = queue.try_recv() {
            let (channel, id) = (Channel::Mqtt, event.id());
            answer.try_send(Answer { channel, id, is_taken: true }).expect("one at a time");
            came.push((event.kind, event.ts));
            telling.follow(&mut answers, 9);
        }
        assert_eq!(came, [(Kind::Fast, 1), (Kind::Slow, 2), (Kind::Heard, 6)]);
        assert_eq!((telling.retold.len(), telling.untold.len()), (3, 0));
        assert_eq!(telling.status.dropped.with_label_values(&["mqtt"]).get(), 4);
    }

    #[test]
    fn new_process_never_replaces_a_retained_state_by_an_older_one() {
        let (orders, mut queue) = mpsc::channel(9);
        let lines = vec![Line::new(Channel::Mqtt, "fleet/events", orders)];
        let mut telling = Telling::new(lines, Arc::new(Status::new()));
        let told = |kind, ts, mqtt_at| Told { event: event(kind, ts), mqtt_at, webhook_at: None };
        let before = vec![told(Kind::Silent, 1, None), told(Kind::Fast, 1, None)];
        let known = vec![
            told(Kind::Heard, 2, None),
            told(Kind::Silent, 3, Some(9)),
            told(Kind::Heard, 4, None),
            told(Kind::Silent, 5, None),
            told(Kind::Jump, 6, None),
        ];
        telling.take_over(before, known);
        let mut came = Vec::new();
        while let Ok(Order::Tell(event)) = queue.try_recv() {
            came.push((event.kind, event.ts));
        }
        assert_eq!(came, [(Kind::Fast, 1), (Kind::Heard, 4), (Kind::Silent, 5), (Kind::Jump, 6)]);
    }
}
