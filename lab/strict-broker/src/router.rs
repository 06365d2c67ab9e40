//! Routes messages: to plain subscriptions by filter, and to share groups.

use std::rc::Rc;

use rumqttc::v5::mqttbytes::QoS;

use crate::filter;
use crate::options::Strategy;
use crate::packet::Share;

pub(crate) type ClientId = Rc<str>;

/// A session that receives a message, with the QoS and the group of its subscription.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Client id of the session; `None`: a ghost, whose session is gone.
    pub(crate) client: Option<ClientId>,
    pub(crate) qos: QoS,
    pub(crate) share: Option<Rc<Share>>,
}

/// A member of a share group. A member whose node was killed stays in the table as a ghost until
/// the node is back.
#[derive(Debug)]
struct Member {
    client: ClientId,
    qos: QoS,
    node: usize,
    is_ghost: bool,
}

#[derive(Debug)]
struct Group {
    share: Rc<Share>,
    members: Vec<Member>,
    /// Index of the member that is next in turn.
    turn: usize,
}

/// Subscriptions of all sessions. The number of filters is small, so they are matched one by one.
#[derive(Debug)]
pub(crate) struct Router {
    strategy: Strategy,
    plain: Vec<(String, ClientId, QoS)>,
    groups: Vec<Group>,
}

impl Router {
    pub(crate) fn new(strategy: Strategy) -> Self {
        Self { strategy, plain: Vec::new(), groups: Vec::new() }
    }

    /// Adds or replaces a subscription of a session on this node. The path must be a valid filter.
    pub(crate) fn subscribe(&mut self, client: &ClientId, path: &str, qos: QoS, node: usize) {
        self.unsubscribe(client, path);
        let Some((group, filter)) = filter::parse(path) else { return };
        let Some(group) = group else {
            self.plain.push((filter.to_owned(), Rc::clone(client), qos));
            return;
        };
        let share = Share { group: group.to_owned(), filter: filter.to_owned() };
        let member = Member { client: Rc::clone(client), qos, node, is_ghost: false };
        match self.groups.iter_mut().find(|group| *group.share == share) {
            Some(group) => group.members.push(member),
            None => {
                self.groups.push(Group { share: Rc::new(share), members: vec![member], turn: 0 })
            }
        }
    }

    pub(crate) fn unsubscribe(&mut self, client: &ClientId, path: &str) {
        let Some((group, filter)) = filter::parse(path) else { return };
        match group {
            None => self.plain.retain(|(known, owner, _)| known != filter || owner != client),
            Some(name) => self.retain(|share, member| {
                share.group != name
                    || share.filter != filter
                    || member.client != *client
                    || member.is_ghost
            }),
        }
    }

    /// Handles the death of a node: the plain subscriptions of its sessions are removed, and their
    /// shared subscriptions stay as ghosts.
    pub(crate) fn kill_node(&mut self, node: usize, clients: &[ClientId]) {
        self.plain.retain(|(_, by, _)| !clients.contains(by));
        for member in self.groups.iter_mut().flat_map(|group| &mut group.members) {
            member.is_ghost |= member.node == node;
        }
    }

    /// Removes the ghosts of a node that is back, or was removed from the cluster.
    pub(crate) fn purge_node(&mut self, node: usize) {
        self.retain(|_, member| member.node != node || !member.is_ghost);
    }

    fn retain(&mut self, keep: impl Fn(&Share, &Member) -> bool) {
        for group in &mut self.groups {
            group.members.retain(|member| keep(&group.share, member));
        }
        self.groups.retain(|group| !group.members.is_empty());
    }

    /// Collects the sessions that receive a message on this topic from a client of this node.
    pub(crate) fn targets(&mut self, topic: &str, node: usize, out: &mut Vec<Target>) {
        for (filter, client, qos) in &self.plain {
            if filter::covers(filter, topic) {
                let client = Some(Rc::clone(client));
                out.push(Target { client, qos: *qos, share: None });
            }
        }
        let node = (self.strategy == Strategy::Local).then_some(node);
        for group in &mut self.groups {
            if filter::covers(&group.share.filter, topic) {
                out.extend(group.next(node));
            }
        }
    }

    /// Returns the next member in turn of a group; `None`: the group has no member.
    pub(crate) fn member(&mut self, share: &Share) -> Option<Target> {
        self.groups.iter_mut().find(|group| *group.share == *share)?.next(None)
    }
}

impl Group {
    /// Returns the next member in turn, preferably a member on `node`. Offline members and ghosts
    /// take their turns as well, as on EMQX.
    fn next(&mut self, node: Option<usize>) -> Option<Target> {
        let count = self.members.len();
        let is_on_node = |index: &usize| node.is_none_or(|node| self.members[*index].node == node);
        let mut indices = (0..count).map(|ahead| (self.turn + ahead) % count);
        let index = indices.clone().find(is_on_node).or_else(|| indices.next())?;
        self.turn = (index + 1) % count;
        let Member { client, qos, is_ghost, .. } = &self.members[index];
        let client = (!is_ghost).then(|| Rc::clone(client));
        Some(Target { client, qos: *qos, share: Some(Rc::clone(&self.share)) })
    }
}
