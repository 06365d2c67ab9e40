//! The nodes of the broker, and the node of each session.
//!
//! Guarantee: sessions are spread evenly at the start. A session that loses its node tries the same
//! node first: to resume on another node is a takeover, in which a broker can lose messages. After
//! [`PATIENCE`] it goes to another node, and stays there. A node without a session gets a new one,
//! which waits for this node as long as it takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::notice::ConsumerNotice;
pub use super::notice::Node;
use crate::session::Session;
use crate::session::events::ConnectionState;

/// How long a session tries its own node before it goes to another one: together with the
/// connection less than a second.
pub const PATIENCE: Duration = Duration::from_millis(750);

/// How long a node may take for its whole answer to a CONNECT, TCP and TLS included, while another
/// node may do better. After it the shell asks the node with a second client, which has no session:
/// a node that resumes a large session answers that one at once, and gets the whole
/// `connect_timeout`. A hung node does not answer within the same time again, and is left.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Known {
    node: Node,
    /// When an attempt failed, if none has succeeded since.
    failed_at: Option<Instant>,
}

/// Where a session is, or connects to.
#[derive(Debug)]
struct Place {
    node: Node,
    /// How long the session tries its node before it moves to another one. `None`: it never moves.
    /// A visit moves at once.
    patience: Option<Duration>,
    lost_at: Option<Instant>,
    /// When the shell began to connect, if the connection has not ended.
    dialed_at: Option<Instant>,
    /// An attempt to reach its node has failed since.
    tried: bool,
    /// Nodes that it has left since it was live.
    moves: usize,
    /// The first of them.
    left: Option<Node>,
    /// When it goes to another node, if it does not reach its own.
    leaves_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Nodes {
    known: Vec<Known>,
    places: Vec<Place>,
}

impl Nodes {
    pub(super) fn new(nodes: &[Node]) -> Self {
        let known = |node: &Node| Known { node: Arc::clone(node), failed_at: None };
        Self { known: nodes.iter().map(known).collect(), places: Vec::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// Names were resolved again. A session that is not connected leaves a node that is gone.
    pub(super) fn set(&mut self, nodes: &[Node]) {
        let before = std::mem::replace(self, Self::new(nodes));
        for known in &mut self.known {
            let same = before.known.iter().find(|same| same.node == known.node);
            known.failed_at = same.and_then(|same| same.failed_at);
        }
        for mut place in before.places {
            if place.dialed_at.is_none() && !self.is_known(&place.node) {
                place.node = self.best(None);
            }
            self.places.push(place);
        }
    }

    pub(super) fn add_session(&mut self, is_visit: bool) {
        let patience = Some(if is_visit { Duration::ZERO } else { PATIENCE });
        self.places.push(Place {
            node: self.best(None),
            patience,
            lost_at: None,
            dialed_at: None,
            moves: 0,
            left: None,
            tried: false,
            leaves_at: None,
        });
    }

    /// This session, which is not connected, is the node's own.
    pub(super) fn assign(&mut self, session: usize, node: Node) {
        let place = &mut self.places[session];
        (place.node, place.patience, place.lost_at) = (node, None, None);
    }

    /// It was made for a node that it has not reached.
    pub(super) fn is_waiting(&self, session: usize) -> bool {
        self.places[session].patience.is_none()
    }

    /// The shell connects this session. Returns to which node, and how long to wait for TCP if
    /// another node may do better; then
    /// [`ANSWERS_WITHIN`] holds, too.
    pub(super) fn dial(&mut self, session: usize, now: Instant) -> (Node, Option<Duration>) {
        self.places[session].dialed_at = Some(now);
        let place = &self.places[session];
        let has_other = self.other(place).is_some_and(|other| other.failed_at.is_none());
        let patience = place.patience.filter(|_| has_other).map(|patience| patience.max(PATIENCE));
        let waited =
            place.lost_at.map_or(Duration::ZERO, |lost_at| now.saturating_duration_since(lost_at));
        let within = patience.map(|patience| patience.saturating_sub(waited).max(PATIENCE / 3));
        (Arc::clone(&place.node), within)
    }

    /// Takes note of connections, and sends sessions whose node stays away to another one.
    pub(super) fn reassign(
        &mut self,
        sessions: &mut [Session],
        now: Instant,
        notices: &mut VecDeque<ConsumerNotice>,
    ) {
        for (index, session) in sessions.iter_mut().enumerate() {
            notices.extend(self.record_connection(index, session.connection(), now));
            let leaves_at =
                session.next_try().and_then(|next_try| self.leaves_at(index, *next_try));
            self.places[index].leaves_at = leaves_at.filter(|at| now < *at);
            if leaves_at.is_some_and(|at| at <= now) {
                let to = self.best(Some(index));
                let place = &mut self.places[index];
                let from = std::mem::replace(&mut place.node, to);
                place.left.get_or_insert(from);
                (place.lost_at, place.moves) = (None, place.moves + 1);
                session.next_try().into_iter().for_each(|next_try| *next_try = now);
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.places.iter().filter_map(|place| place.leaves_at).min()
    }

    /// Returns a log line if the session has moved.
    fn record_connection(
        &mut self,
        session: usize,
        connection: ConnectionState,
        now: Instant,
    ) -> Option<ConsumerNotice> {
        let mut moved = None;
        let place = &mut self.places[session];
        let known = self.known.iter_mut().find(|known| known.node == place.node);
        let ended = if let ConnectionState::BackingOff { lived, .. } = connection {
            Some(lived)
        } else {
            None
        };
        let ended = ended.filter(|_| place.dialed_at.is_some());
        if connection.live_since().is_some() || ended == Some(true) {
            (place.lost_at, place.moves) = (None, 0);
            let to = &place.node;
            let from = place.left.take().filter(|from| from != to);
            moved = from.map(|from| ConsumerNotice::Moved { session, from, to: Arc::clone(to) });
            place.patience = place.patience.or(Some(PATIENCE));
            known.into_iter().for_each(|known| known.failed_at = None);
        } else if ended == Some(false) {
            known.into_iter().for_each(|known| known.failed_at = Some(now));
        }
        if let Some(lived) = ended {
            // The time that a node took to give no answer counts: a hung one is not tried twice.
            let dialed_at = place.dialed_at.take().filter(|_| !lived);
            place.lost_at.get_or_insert(dialed_at.unwrap_or(now));
            place.tried = !lived;
        }
        moved
    }

    fn leaves_at(&self, session: usize, next_try: Instant) -> Option<Instant> {
        let place = &self.places[session];
        let other = self.other(place)?;
        let patience = match (self.is_known(&place.node), place.tried) {
            (false, _) => Duration::ZERO,
            (true, true) => place.patience?,
            (true, false) => return None, // however long the wait before the next attempt
        };
        let at = place.lost_at? + patience;
        // After a round of all nodes the cause is not a node: then the waits grow as with one.
        let is_round = place.moves + 1 >= self.known.len();
        Some(if other.failed_at.is_some() || is_round { at.max(next_try) } else { at })
    }

    /// A node that has none of these sessions, if there are enough of them for each node to have
    /// one.
    pub(super) fn without_session(&self, members: usize, may_grow: bool) -> Option<Node> {
        let has_none =
            |known: &&Known| self.places[..members].iter().all(|place| place.node != known.node);
        let known = self.known.iter().find(has_none)?;
        (self.known.len() > 1 && (may_grow || members >= self.known.len()))
            .then(|| Arc::clone(&known.node))
    }

    /// Every node, with the number of live sessions among these, the first ones.
    pub(super) fn totals(&self, members: &[Session]) -> Vec<(Node, u64)> {
        let live = |node: &Node| {
            let is_on_it = |(session, place): &(&Session, &Place)| {
                place.node == *node && session.connection().live_since().is_some()
            };
            members.iter().zip(&self.places).filter(is_on_it).count() as u64
        };
        self.known.iter().map(|known| (Arc::clone(&known.node), live(&known.node))).collect()
    }

    fn is_known(&self, node: &Node) -> bool {
        self.known.iter().any(|known| known.node == *node)
    }

    fn other(&self, place: &Place) -> Option<&Known> {
        let others = self.known.iter().filter(|known| known.node != place.node);
        others.min_by_key(|known| self.rank(known))
    }

    /// The node for a session, or the one it goes to.
    fn best(&self, leaving: Option<usize>) -> Node {
        let from = leaving.map(|session| &self.places[session]);
        let known = match from.and_then(|place| self.other(place)) {
            Some(other) => other,
            None => {
                self.known.iter().min_by_key(|known| self.rank(known)).expect("there is a node")
            }
        };
        Arc::clone(&known.node)
    }

    /// Nodes that answer first, then those that failed long ago; among equals the one with the
    /// fewest sessions.
    fn rank(&self, known: &Known) -> (Option<Instant>, usize) {
        (known.failed_at, self.places.iter().filter(|place| place.node == known.node).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Node> {
        names.iter().map(|name| Node::from(*name)).collect()
    }

    #[test]
    fn resolving_again_moves_only_unconnected_sessions() {
        let (mut nodes, now) = (Nodes::new(&named(&["a", "b"])), Instant::now());
        (0..4).for_each(|_| nodes.add_session(false));
        nodes.known[1].failed_at = Some(now);
        for session in [0, 1] {
            nodes.dial(session, now);
        }
        nodes.set(&named(&["b", "c"]));
        assert_eq!(
            nodes.places.iter().map(|place| &*place.node).collect::<Vec<_>>(),
            ["a", "b", "c", "b"]
        );
        assert_eq!(
            nodes.known.iter().map(|known| known.failed_at).collect::<Vec<_>>(),
            [Some(now), None]
        );
    }

    #[test]
    fn a_node_gets_the_less_time_the_longer_its_session_is_without_one() {
        let (mut nodes, began) = (Nodes::new(&named(&["a", "b"])), Instant::now());
        nodes.add_session(false);
        assert_eq!(nodes.dial(0, began), (Node::from("a"), Some(PATIENCE)));
        nodes.places[0].lost_at = Some(began);
        assert_eq!(nodes.dial(0, began + PATIENCE / 3).1, Some(PATIENCE - PATIENCE / 3));
        assert_eq!(nodes.dial(0, began + PATIENCE * 9).1, Some(PATIENCE / 3), "the least");
        nodes.known[1].failed_at = Some(began);
        assert_eq!(nodes.dial(0, began).1, None, "no other does better");
    }
}
