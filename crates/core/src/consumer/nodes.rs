//! The nodes of the broker, and the node of each session.
//!
//! Guarantee: sessions are spread evenly at the start. A session that loses its node first tries
//! the same node again: resuming on another node is a takeover, in which a broker can lose
//! messages. After [`PATIENCE`] the session moves to another node, and stays there. A node that no
//! session uses gets a new session, which waits for this node without a time limit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::notice::ConsumerNotice;
pub use super::notice::Node;
use crate::session::Session;
use crate::session::events::ConnectionState;

/// Time for which a session tries its own node before it moves to another one. Including the new
/// connection, the move takes less than a second.
pub const PATIENCE: Duration = Duration::from_millis(750);

/// Longest wait for a node's answer to CONNECT while another node is available. The wait includes
/// TCP and TLS. After this time, the attempt fails if TCP or TLS is not established yet. Otherwise
/// the shell tests the node with a second client, which has no session.
///
/// If the node answers the second client, the node is probably busy resuming the first client's
/// session, which may be large: the first client goes on waiting, for `connect_timeout` in all. If
/// the node does not answer the second client within [`NODE_ANSWER_TIMEOUT`] either, the node
/// counts as hung, and the session moves to another node.
pub const NODE_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A node, and when it last failed.
#[derive(Debug)]
struct NodeState {
    node: Node,
    /// Time of the last failed attempt; `None` if an attempt has succeeded since, or none failed.
    failed_at: Option<Instant>,
}

/// The node of a session, and the attempts to connect to it.
#[derive(Debug)]
struct Placement {
    node: Node,
    /// Time for which the session tries its node before it moves to another one; zero for a visit
    /// to a former session. `None`: the session was added for this node, and waits until it has
    /// reached the node once.
    patience: Option<Duration>,
    /// Time from which the patience counts; `None` while the session is live, or after a move.
    lost_at: Option<Instant>,
    /// Time at which the shell began to connect; `None` once the connection, or the attempt, has
    /// ended.
    dialed_at: Option<Instant>,
    /// The last attempt to reach the node failed.
    has_failed: bool,
    /// Number of moves since the session was last live.
    moves: usize,
    /// The node of the last live connection, once the session has moved.
    moved_from: Option<Node>,
    /// Time at which the session moves to another node unless it reaches its own node; `None` if it
    /// does not move.
    moves_at: Option<Instant>,
}

/// The nodes of the broker, and the placement of each session on a node.
#[derive(Debug)]
pub(super) struct Nodes {
    states: Vec<NodeState>,
    placements: Vec<Placement>,
}

impl Nodes {
    pub(super) fn new(nodes: &[Node]) -> Self {
        let state = |node: &Node| NodeState { node: Arc::clone(node), failed_at: None };
        Self { states: nodes.iter().map(state).collect(), placements: Vec::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.states.len()
    }

    /// Replaces the list of nodes after host names were resolved again. A session that is not
    /// connected moves if its node is no longer listed.
    pub(super) fn set(&mut self, nodes: &[Node]) {
        let before = std::mem::replace(self, Self::new(nodes));
        for state in &mut self.states {
            let same = before.states.iter().find(|old| old.node == state.node);
            state.failed_at = same.and_then(|old| old.failed_at);
        }
        for mut placement in before.placements {
            if placement.dialed_at.is_none() && !self.is_listed(&placement.node) {
                placement.node = self.best(None);
            }
            self.placements.push(placement);
        }
    }

    /// Places the next session on the best node.
    pub(super) fn add_session(&mut self, is_visit: bool) {
        let patience = Some(if is_visit { Duration::ZERO } else { PATIENCE });
        self.placements.push(Placement {
            node: self.best(None),
            patience,
            lost_at: None,
            dialed_at: None,
            moves: 0,
            moved_from: None,
            has_failed: false,
            moves_at: None,
        });
    }

    /// Records that a session whose visit has ended starts to consume: it no longer leaves its node
    /// at once.
    pub(super) fn start_consuming(&mut self, session: usize) {
        let placement = &mut self.placements[session];
        (placement.patience, placement.lost_at) = (Some(PATIENCE), None);
    }

    /// Assigns this node to an unconnected session. The session waits for the node without a time
    /// limit.
    pub(super) fn assign(&mut self, session: usize, node: Node) {
        let placement = &mut self.placements[session];
        (placement.node, placement.patience, placement.lost_at) = (node, None, None);
    }

    /// Returns whether the session was added for a node that it has not reached yet.
    pub(super) fn is_waiting(&self, session: usize) -> bool {
        self.placements[session].patience.is_none()
    }

    /// Records that the shell starts to connect this session. Returns the node and, if another node
    /// is available, the timeout of the TCP connection. The timeout for the node's answer is then
    /// [`NODE_ANSWER_TIMEOUT`].
    pub(super) fn dial(&mut self, session: usize, now: Instant) -> (Node, Option<Duration>) {
        self.placements[session].dialed_at = Some(now);
        let placement = &self.placements[session];
        let has_other = self.best_other(placement).is_some_and(|other| other.failed_at.is_none());
        let patience =
            placement.patience.filter(|_| has_other).map(|patience| patience.max(PATIENCE));
        let waited = placement
            .lost_at
            .map_or(Duration::ZERO, |lost_at| now.saturating_duration_since(lost_at));
        // Even when no patience is left, an attempt needs some time to succeed.
        let connect_timeout =
            patience.map(|patience| patience.saturating_sub(waited).max(PATIENCE / 3));
        (Arc::clone(&placement.node), connect_timeout)
    }

    /// Records the state of the connections, and moves sessions whose node stays unreachable to
    /// another node.
    pub(super) fn reassign(
        &mut self,
        sessions: &mut [Session],
        now: Instant,
        notices: &mut VecDeque<ConsumerNotice>,
    ) {
        for (index, session) in sessions.iter_mut().enumerate() {
            notices.extend(self.record_connection(index, session.connection(), now));
            let moves_at = session.next_try().and_then(|next_try| self.moves_at(index, next_try));
            self.placements[index].moves_at = moves_at.filter(|at| now < *at);
            if moves_at.is_some_and(|at| at <= now) {
                let to = self.best(Some(index));
                let placement = &mut self.placements[index];
                let from = std::mem::replace(&mut placement.node, to);
                placement.moved_from.get_or_insert(from);
                (placement.lost_at, placement.moves) = (None, placement.moves + 1);
                session.try_now(now);
            }
        }
    }

    /// Returns when the next session moves; `None` if no session does.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.placements.iter().filter_map(|placement| placement.moves_at).min()
    }

    /// Records the state of one session's connection. Returns a log line if the session has moved.
    fn record_connection(
        &mut self,
        session: usize,
        connection: ConnectionState,
        now: Instant,
    ) -> Option<ConsumerNotice> {
        let mut moved = None;
        let placement = &mut self.placements[session];
        let state = self.states.iter_mut().find(|state| state.node == placement.node);
        // `Some(was_live)` if the connection, or the attempt to connect, has ended since the last
        // call.
        let was_live_at_end = if let ConnectionState::BackingOff { was_live, .. } = connection {
            Some(was_live)
        } else {
            None
        };
        let was_live_at_end = was_live_at_end.filter(|_| placement.dialed_at.is_some());
        if connection.live_since().is_some() || was_live_at_end == Some(true) {
            (placement.lost_at, placement.moves) = (None, 0);
            let to = &placement.node;
            let from = placement.moved_from.take().filter(|from| from != to);
            moved = from.map(|from| ConsumerNotice::Moved { session, from, to: Arc::clone(to) });
            placement.patience = placement.patience.or(Some(PATIENCE));
            state.into_iter().for_each(|state| state.failed_at = None);
        } else if was_live_at_end == Some(false) {
            state.into_iter().for_each(|state| state.failed_at = Some(now));
        }
        if let Some(was_live) = was_live_at_end {
            // The patience counts from the start of a failed attempt, not from its end. So one
            // attempt at a hung node can use up the patience, and the node is not tried twice.
            let dialed_at = placement.dialed_at.take().filter(|_| !was_live);
            placement.lost_at.get_or_insert(dialed_at.unwrap_or(now));
            placement.has_failed = !was_live;
        }
        moved
    }

    /// Returns when the session moves to another node; `None` if it stays. `next_try`: the time of
    /// the session's next regular attempt to connect.
    fn moves_at(&self, session: usize, next_try: Instant) -> Option<Instant> {
        let placement = &self.placements[session];
        let other = self.best_other(placement)?;
        let patience = match (self.is_listed(&placement.node), placement.has_failed) {
            (false, _) => Duration::ZERO,
            (true, true) => placement.patience?,
            (true, false) => return None, // no attempt has failed since the connection ended
        };
        let at = placement.lost_at? + patience;
        // If attempts on all nodes have failed, no single node is the cause: wait for the next
        // regular attempt, as with one node.
        let ends_round = placement.moves + 1 >= self.states.len();
        Some(if other.failed_at.is_some() || ends_round { at.max(next_try) } else { at })
    }

    /// Returns a node that none of the consuming sessions uses. `consuming`: their number; they
    /// have the lowest indices. `None` if every node is used, or if the broker has only one node.
    /// `None` also if there are fewer sessions than nodes and their number is fixed (`may_grow` is
    /// `false`).
    pub(super) fn node_without_session(&self, consuming: usize, may_grow: bool) -> Option<Node> {
        let has_none = |state: &&NodeState| {
            self.placements[..consuming].iter().all(|placement| placement.node != state.node)
        };
        let state = self.states.iter().find(has_none)?;
        (self.states.len() > 1 && (may_grow || consuming >= self.states.len()))
            .then(|| Arc::clone(&state.node))
    }

    /// Returns every node with the number of its live sessions. `consuming`: the consuming
    /// sessions, in the order of their indices.
    pub(super) fn totals(&self, consuming: &[Session]) -> Vec<(Node, u64)> {
        let live = |node: &Node| {
            let is_live_on_node = |(session, placement): &(&Session, &Placement)| {
                placement.node == *node && session.connection().live_since().is_some()
            };
            consuming.iter().zip(&self.placements).filter(is_live_on_node).count() as u64
        };
        self.states.iter().map(|state| (Arc::clone(&state.node), live(&state.node))).collect()
    }

    fn is_listed(&self, node: &Node) -> bool {
        self.states.iter().any(|state| state.node == *node)
    }

    /// Returns the best node other than the placement's own.
    fn best_other(&self, placement: &Placement) -> Option<&NodeState> {
        let others = self.states.iter().filter(|state| state.node != placement.node);
        others.min_by_key(|state| self.rank(state))
    }

    /// Returns the best node for a new session or, if `moving` is the index of a session, for the
    /// move of that session.
    fn best(&self, moving: Option<usize>) -> Node {
        let from = moving.map(|session| &self.placements[session]);
        let state = match from.and_then(|placement| self.best_other(placement)) {
            Some(other) => other,
            None => self
                .states
                .iter()
                .min_by_key(|state| self.rank(state))
                .expect("the list of nodes is never empty"),
        };
        Arc::clone(&state.node)
    }

    /// Returns the rank of a node; the lowest rank is best. Nodes without a failure come first,
    /// then the nodes whose last failure is longest ago. Among equal nodes, the node with the
    /// fewest sessions comes first.
    fn rank(&self, state: &NodeState) -> (Option<Instant>, usize) {
        (
            state.failed_at,
            self.placements.iter().filter(|placement| placement.node == state.node).count(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes_named(names: &[&str]) -> Vec<Node> {
        names.iter().map(|name| Node::from(*name)).collect()
    }

    #[test]
    fn new_addresses_move_only_unconnected_sessions() {
        let (mut nodes, now) = (Nodes::new(&nodes_named(&["a", "b"])), Instant::now());
        (0..4).for_each(|_| nodes.add_session(false));
        nodes.states[1].failed_at = Some(now);
        for session in [0, 1] {
            nodes.dial(session, now);
        }
        nodes.set(&nodes_named(&["b", "c"]));
        assert_eq!(
            nodes.placements.iter().map(|placement| &*placement.node).collect::<Vec<_>>(),
            ["a", "b", "c", "b"]
        );
        assert_eq!(
            nodes.states.iter().map(|state| state.failed_at).collect::<Vec<_>>(),
            [Some(now), None]
        );
    }

    #[test]
    fn connect_timeout_shrinks_while_the_session_is_disconnected() {
        let (mut nodes, began) = (Nodes::new(&nodes_named(&["a", "b"])), Instant::now());
        nodes.add_session(false);
        assert_eq!(nodes.dial(0, began), (Node::from("a"), Some(PATIENCE)));
        nodes.placements[0].lost_at = Some(began);
        let connect_timeout = |nodes: &mut Nodes, waited| {
            let (_, timeout) = nodes.dial(0, began + waited);
            timeout
        };
        assert_eq!(connect_timeout(&mut nodes, PATIENCE / 3), Some(PATIENCE - PATIENCE / 3));
        assert_eq!(connect_timeout(&mut nodes, PATIENCE * 9), Some(PATIENCE / 3), "the minimum");
        nodes.states[1].failed_at = Some(began);
        assert_eq!(connect_timeout(&mut nodes, Duration::ZERO), None, "the other node has failed");
    }
}
