//! A broker that keeps sessions, packet ids and windows as MQTT specifies, with the faults of real
//! brokers.
//!
//! The broker can be a cluster of two nodes that behaves as EMQX does: a node that is killed loses
//! its sessions. Their shared subscriptions stay as ghosts, which get their share of the messages
//! until the node is back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::rows::Sent;

/// Highest packet id. It is low, so that ids are soon used again, as in a long session.
const PACKET_ID_MAX: u16 = 2_000;

#[derive(Debug, Default)]
pub struct Session {
    pub connected: bool,
    pub subscribed: bool,
    /// Process that has the connection, or that had it last.
    process: u64,
    pub node: usize,
    queue: VecDeque<Sent>,
    /// Delivered and unacknowledged messages in order of delivery.
    in_flight: VecDeque<InFlight>,
    packet_id: u16,
    /// Start of the expiry interval; `None`: the interval has not begun.
    away_since: Option<Instant>,
}

#[derive(Debug)]
struct InFlight {
    packet_id: u16,
    message: Sent,
    /// The message was delivered on this connection, and is not to be resent.
    is_delivered: bool,
}

impl Session {
    /// Makes the broker deliver all messages in flight again.
    fn resend(&mut self) {
        self.in_flight.iter_mut().for_each(|in_flight| in_flight.is_delivered = false);
    }

    /// Returns all messages, the oldest first.
    fn into_messages(self) -> impl Iterator<Item = Sent> {
        self.in_flight.into_iter().map(|in_flight| in_flight.message).chain(self.queue)
    }
}

/// The process that calls the broker now. In a group, every member has its own range of client ids.
#[derive(Debug, Default, Clone, Copy)]
pub struct Client {
    pub first_id: usize,
    pub process: u64,
    /// Node behind the process's first URL.
    pub node: usize,
}

/// Sessions by client id, here a number.
#[derive(Debug, Default)]
pub struct Broker {
    pub sessions: BTreeMap<usize, Session>,
    pub client: Client,
    /// Use EMQX's strategy `round_robin`; otherwise `local`: sessions on the publisher's node
    /// first.
    pub round_robin: bool,
    /// Node of each ghost.
    ghosts: Vec<usize>,
    /// Session Expiry Interval; `None`: sessions never expire.
    pub expiry: Option<Duration>,
    /// Nodes that accept no connection.
    pub unreachable: BTreeSet<usize>,
    /// Nodes that accept connections but do not answer.
    pub hung: BTreeSet<usize>,
    /// Number of times that a session was resumed on another node.
    pub takeovers: usize,
    /// Number of messages published; selects the next session in turn.
    published: usize,
    /// Sessions that expired, by client id.
    pub expired: Vec<usize>,
    /// Messages that were lost with a session.
    pub lost: BTreeSet<u32>,
}

/// A PUBLISH from the broker to a session.
pub struct Sending {
    pub packet_id: Option<u16>,
    pub redelivered: bool,
    pub message: Sent,
}

impl Broker {
    /// Queues a message for one of the subscribed sessions, in turn; a ghost that gets the turn
    /// swallows the message. Returns `false` if no session is subscribed and there is no ghost.
    /// `node`: the node to which the device is connected.
    pub fn publish(&mut self, message: Sent, node: usize) -> bool {
        // Each subscription: its client id, or `None` for a ghost, and its node.
        let sessions = self.sessions.iter().filter(|(_, session)| session.subscribed);
        let sessions = sessions.map(|(id, session)| (Some(*id), session.node));
        let ghosts = self.ghosts.iter().map(|node| (None, *node));
        let subscriptions: Vec<_> = sessions.chain(ghosts).collect();
        self.published += 1;
        let mut turns = (0..subscriptions.len())
            .map(|ahead| subscriptions[(self.published + ahead) % subscriptions.len()]);
        let is_preferred = |(_, subscribed_at): &(Option<usize>, usize)| {
            self.round_robin || *subscribed_at == node
        };
        match turns.clone().find(is_preferred).or_else(|| turns.next()) {
            Some((Some(id), _)) => self.sessions.get_mut(&id).unwrap().queue.push_back(message),
            Some((None, _)) => {}
            None => return false,
        }
        true
    }

    /// Kills a node (kill -9).
    pub fn kill_node(&mut self, node: usize) {
        let on_node = self.sessions.iter().filter(|(_, session)| session.node == node);
        let on_node: Vec<_> = on_node.map(|(id, session)| (*id, session.subscribed)).collect();
        for (id, subscribed) in on_node {
            self.lose_id(id, false);
            self.ghosts.extend(subscribed.then_some(node));
        }
    }

    /// Starts a node again, which ends its ghosts.
    pub fn start_node(&mut self, node: usize) {
        self.ghosts.retain(|ghost| *ghost != node);
    }

    fn client_id(&self, id: usize) -> usize {
        self.client.first_id + id
    }

    /// Returns the session, if the calling process has its connection.
    pub fn session(&mut self, id: usize) -> Option<&mut Session> {
        let (id, process) = (self.client_id(id), self.client.process);
        self.sessions.get_mut(&id).filter(|session| session.connected && session.process == process)
    }

    /// Returns whether any process has an open connection to the session.
    pub fn is_connected(&self, id: usize) -> bool {
        self.sessions.get(&self.client_id(id)).is_some_and(|session| session.connected)
    }

    /// Handles CONNECT; returns whether the session is present.
    pub fn connect(&mut self, id: usize, node: usize, clean_start: bool) -> bool {
        let was_present = self.sessions.contains_key(&self.client_id(id));
        if clean_start {
            self.redispatch(id);
        }
        let Client { process, node: first_node, .. } = self.client;
        let node = first_node + node;
        let session = self.sessions.entry(self.client.first_id + id).or_default();
        self.takeovers += usize::from(was_present && !clean_start && session.node != node);
        session.away_since = None;
        (session.connected, session.process, session.node) = (true, process, node);
        session.resend();
        was_present && !clean_start
    }

    /// Ends the connection that the calling process has to this session.
    pub fn disconnected(&mut self, id: usize) {
        if let Some(session) = self.session(id) {
            session.connected = false;
        }
    }

    /// Ends all connections of the process.
    pub fn process_died(&mut self) {
        let process = self.client.process;
        let own_sessions = self.sessions.values_mut().filter(|session| session.process == process);
        own_sessions.for_each(|session| session.connected = false);
    }

    /// Removes sessions that have been disconnected for too long, with their messages.
    pub fn expire(&mut self, now: Instant) {
        let Some(expiry) = self.expiry else { return };
        let mut expired = Vec::new();
        for (id, session) in &mut self.sessions {
            if !session.connected && now >= *session.away_since.get_or_insert(now) + expiry {
                expired.push(*id);
            }
        }
        expired.iter().for_each(|id| self.lose_id(*id, false));
        self.expired.extend(expired);
    }

    /// Ends a session; the other sessions of the group get its messages.
    pub fn redispatch(&mut self, id: usize) {
        let Some(session) = self.sessions.remove(&self.client_id(id)) else { return };
        let node = session.node;
        for message in session.into_messages() {
            let seqs = message.seqs.clone();
            if !self.publish(message, node) {
                self.lost.extend(seqs);
            }
        }
    }

    /// Loses a session with its messages. `remembered`: the broker still reports the session as
    /// present.
    pub fn lose(&mut self, id: usize, remembered: bool) {
        self.lose_id(self.client_id(id), remembered);
    }

    /// Like [`lose`](Self::lose). `id`: the client id, and not the number of a session in the
    /// calling process.
    fn lose_id(&mut self, id: usize, remembered: bool) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let Session { subscribed, process, node, .. } = session;
        self.lost.extend(session.into_messages().flat_map(|message| message.seqs));
        if remembered {
            self.sessions.insert(id, Session { subscribed, process, node, ..Session::default() });
        }
    }

    /// Redelivers unacknowledged messages on the same connection, as EMQX before 5.8 does every
    /// `mqtt.retry_interval`.
    pub fn resend(&mut self, id: usize) {
        if let Some(session) = self.session(id) {
            session.resend();
        }
    }

    /// Returns the next message within the window: redeliveries first, then new messages.
    pub fn deliver(&mut self, id: usize, window: usize) -> Option<Sending> {
        let session = self.session(id)?;
        if let Some(InFlight { packet_id, message, is_delivered }) =
            session.in_flight.iter_mut().find(|in_flight| !in_flight.is_delivered)
        {
            *is_delivered = true;
            return Some(Sending {
                packet_id: Some(*packet_id),
                redelivered: true,
                message: message.clone(),
            });
        }
        if session.in_flight.len() >= window {
            return None;
        }
        let message = session.queue.pop_front()?;
        let packet_id = message.qos1.then(|| {
            session.packet_id = session.packet_id % PACKET_ID_MAX + 1;
            session.packet_id
        });
        if let Some(packet_id) = packet_id {
            let message = message.clone();
            session.in_flight.push_back(InFlight { packet_id, message, is_delivered: true });
        }
        Some(Sending { packet_id, redelivered: false, message })
    }

    /// Handles PUBACK. Returns the numbers of the message's points. The message must be the oldest
    /// one in flight, and must have been delivered on this connection.
    pub fn acknowledged(&mut self, id: usize, packet_id: u16) -> Vec<u32> {
        let session = self.session(id).expect("PUBACK on an open connection");
        let oldest = session.in_flight.pop_front().expect("a message in flight");
        assert_eq!(packet_id, oldest.packet_id, "PUBACK out of order, or for another connection");
        assert!(oldest.is_delivered, "PUBACK before the message was delivered on this connection");
        oldest.message.seqs
    }

    /// Returns the number of messages in flight and in queues.
    pub fn waiting(&self) -> usize {
        self.sessions.values().map(|session| session.in_flight.len() + session.queue.len()).sum()
    }
}
