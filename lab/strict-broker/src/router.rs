//! Who gets a message: subscriptions by filter, share groups, and what is retained.

use std::collections::BTreeMap;
use std::rc::Rc;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::Filter;

use crate::filter;
use crate::packet::{Message, Share};

/// A client id.
pub(crate) type ClientId = Rc<str>;

/// What a client asked for with a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// The highest it takes.
    pub(crate) qos: QoS,
    /// Not what it publishes itself.
    pub(crate) no_local: bool,
    /// The retain flag as the publisher set it.
    pub(crate) keep_retain: bool,
    /// To be told with each message.
    pub(crate) identifier: Option<usize>,
}

impl Subscription {
    /// As it was asked for.
    pub(crate) fn new(filter: &Filter, identifier: Option<usize>) -> Self {
        let Filter { qos, nolocal, preserve_retain, .. } = *filter;
        Self { qos, no_local: nolocal, keep_retain: preserve_retain, identifier }
    }

    /// The message as this subscription gets it.
    pub(crate) fn apply(&self, message: &Message, share: Option<Rc<Share>>) -> Message {
        let qos = if message.qos < self.qos { message.qos } else { self.qos };
        let mut delivered = Message { qos, share, ..message.clone() };
        delivered.retain &= self.keep_retain;
        if let Some(identifier) = self.identifier {
            let mut properties = message.properties.as_deref().cloned().unwrap_or_default();
            properties.subscription_identifiers = vec![identifier];
            delivered.properties = Some(Rc::new(properties));
        }
        delivered
    }
}

/// A session that gets a message, and how.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Whose session.
    pub(crate) client: ClientId,
    /// How.
    pub(crate) subscription: Subscription,
    /// On behalf of which group.
    pub(crate) share: Option<Rc<Share>>,
}

#[derive(Debug)]
struct Group {
    share: Rc<Share>,
    members: Vec<(ClientId, Subscription)>,
    turn: usize,
}

/// See the module. The number of filters is small, and so they are asked one by one.
#[derive(Debug, Default)]
pub(crate) struct Router {
    plain: Vec<(String, ClientId, Subscription)>,
    groups: Vec<Group>,
    retained: BTreeMap<String, Message>,
}

impl Router {
    /// Adds a subscription, or replaces it. The path is a valid filter.
    pub(crate) fn subscribe(&mut self, client: &ClientId, path: &str, subscription: Subscription) {
        self.unsubscribe(client, path);
        let Some((group, filter)) = filter::parse(path) else { return };
        let Some(group) = group else {
            self.plain.push((filter.to_owned(), Rc::clone(client), subscription));
            return;
        };
        let share = Share { group: group.to_owned(), filter: filter.to_owned() };
        let member = (Rc::clone(client), subscription);
        match self.groups.iter_mut().find(|group| *group.share == share) {
            Some(group) => group.members.push(member),
            None => self.groups.push(Group { share: Rc::new(share), members: vec![member], turn: 0 }),
        }
    }

    /// Takes a subscription back.
    pub(crate) fn unsubscribe(&mut self, client: &ClientId, path: &str) {
        let Some((group, filter)) = filter::parse(path) else { return };
        match group {
            None => self.plain.retain(|(known, by, _)| known != filter || by != client),
            Some(name) => {
                for group in &mut self.groups {
                    if group.share.group == name && group.share.filter == filter {
                        group.members.retain(|(member, _)| member != client);
                    }
                }
                self.groups.retain(|group| !group.members.is_empty());
            }
        }
    }

    /// Who gets a message on this topic.
    pub(crate) fn targets(&mut self, topic: &str, publisher: Option<&ClientId>, out: &mut Vec<Target>) {
        for (filter, client, subscription) in &self.plain {
            let own = subscription.no_local && publisher == Some(client);
            if !own && filter::covers(filter, topic) {
                out.push(Target { client: Rc::clone(client), subscription: *subscription, share: None });
            }
        }
        for group in &mut self.groups {
            if filter::covers(&group.share.filter, topic) {
                out.extend(group.next());
            }
        }
    }

    /// The next member of a group.
    pub(crate) fn member(&mut self, share: &Share) -> Option<Target> {
        self.groups.iter_mut().find(|group| *group.share == *share)?.next()
    }

    /// Keeps a message for later subscriptions; an empty one ends that.
    pub(crate) fn retain(&mut self, topic: &str, message: &Message) {
        if message.payload.is_empty() {
            self.retained.remove(topic);
        } else {
            self.retained.insert(topic.to_owned(), message.clone());
        }
    }

    /// What a new subscription that is not shared gets at once.
    pub(crate) fn retained<'a>(&'a self, filter: &'a str) -> impl Iterator<Item = &'a Message> {
        let covered = self.retained.iter().filter(move |(topic, _)| filter::covers(filter, topic));
        covered.map(|(_, message)| message)
    }
}

impl Group {
    /// In turns, and an offline member has its turn too, as on EMQX.
    fn next(&mut self) -> Option<Target> {
        let (client, subscription) = self.members.get(self.turn % self.members.len().max(1))?;
        self.turn = (self.turn + 1) % self.members.len();
        let share = Some(Rc::clone(&self.share));
        Some(Target { client: Rc::clone(client), subscription: *subscription, share })
    }
}
