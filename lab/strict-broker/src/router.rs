//! Who gets a message: subscriptions by filter, and share groups.

use std::rc::Rc;

use rumqttc::v5::mqttbytes::QoS;

use crate::filter;
use crate::packet::Share;

/// A client id.
pub(crate) type ClientId = Rc<str>;

/// A session that gets a message, and how.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Whose session.
    pub(crate) client: ClientId,
    /// The highest it takes.
    pub(crate) qos: QoS,
    /// On behalf of which group.
    pub(crate) share: Option<Rc<Share>>,
}

#[derive(Debug)]
struct Group {
    share: Rc<Share>,
    members: Vec<(ClientId, QoS)>,
    turn: usize,
}

/// See the module. The number of filters is small, and so they are asked one by one.
#[derive(Debug, Default)]
pub(crate) struct Router {
    plain: Vec<(String, ClientId, QoS)>,
    groups: Vec<Group>,
}

impl Router {
    /// Adds a subscription, or replaces it. The path is a valid filter.
    pub(crate) fn subscribe(&mut self, client: &ClientId, path: &str, qos: QoS) {
        self.unsubscribe(client, path);
        let Some((group, filter)) = filter::parse(path) else { return };
        let Some(group) = group else {
            self.plain.push((filter.to_owned(), Rc::clone(client), qos));
            return;
        };
        let share = Share { group: group.to_owned(), filter: filter.to_owned() };
        let member = (Rc::clone(client), qos);
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
    pub(crate) fn targets(&mut self, topic: &str, out: &mut Vec<Target>) {
        for (filter, client, qos) in &self.plain {
            if filter::covers(filter, topic) {
                out.push(Target { client: Rc::clone(client), qos: *qos, share: None });
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
}

impl Group {
    /// In turns, and an offline member has its turn too, as on EMQX.
    fn next(&mut self) -> Option<Target> {
        let (client, qos) = self.members.get(self.turn % self.members.len().max(1))?;
        self.turn = (self.turn + 1) % self.members.len();
        let share = Some(Rc::clone(&self.share));
        Some(Target { client: Rc::clone(client), qos: *qos, share })
    }
}
