//! A broker that keeps sessions, packet ids and windows as MQTT says, and does to them what brokers do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::rows::Sent;

#[derive(Debug, Default)]
pub struct Session {
    pub connected: bool,
    pub subscribed: bool,
    pub node: usize,
    queue: VecDeque<Sent>,
    /// Delivered and not acknowledged, in order of delivery; whether on this connection.
    in_flight: VecDeque<(u16, Sent, bool)>,
    packet_id: u16,
    away_since: Option<Instant>,
}

/// By client id, here a number.
#[derive(Debug, Default)]
pub struct Broker {
    pub sessions: BTreeMap<usize, Session>,
    /// Session Expiry Interval; `None`: sessions stay for ever.
    pub expiry: Option<Duration>,
    /// Nodes that take no connection.
    pub away: BTreeSet<usize>,
    /// Sessions that were resumed on another node.
    pub takeovers: usize,
    next: usize,
    /// Sent at QoS 1, and gone with a session.
    pub lost: BTreeSet<u32>,
}

/// What a delivery is.
pub struct Sending {
    pub packet_id: Option<u16>,
    pub redelivered: bool,
    pub message: Sent,
}

impl Broker {
    /// To the members in turn; `false`: there is none.
    pub fn publish(&mut self, message: Sent) -> bool {
        let members: Vec<usize> =
            self.sessions.iter().filter(|(_, session)| session.subscribed).map(|(id, _)| *id).collect();
        if members.is_empty() {
            return false;
        }
        self.next += 1;
        let session = self.sessions.get_mut(&members[self.next % members.len()]).unwrap();
        session.queue.push_back(message);
        true
    }

    /// CONNECT; whether the session is present.
    pub fn connect(&mut self, id: usize, node: usize, clean_start: bool) -> bool {
        let was_there = self.sessions.contains_key(&id);
        if clean_start {
            self.redispatch(id);
        }
        let session = self.sessions.entry(id).or_default();
        session.connected = true;
        self.takeovers += usize::from(was_there && session.node != node);
        session.node = node;
        session.in_flight.iter_mut().for_each(|(_, _, on_this)| *on_this = false);
        was_there && !clean_start
    }

    pub fn disconnected(&mut self, id: usize) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.connected = false;
        }
    }

    /// Sessions that were away for too long go, with what they hold.
    pub fn expire(&mut self, now: Instant) {
        let Some(expiry) = self.expiry else { return };
        let mut expired = Vec::new();
        for (id, session) in &mut self.sessions {
            if session.connected {
                session.away_since = None;
            } else if now >= *session.away_since.get_or_insert(now) + expiry {
                expired.push(*id);
            }
        }
        expired.into_iter().for_each(|id| self.lose(id, false));
    }

    /// A session ends; the others of its group get what it held.
    pub fn redispatch(&mut self, id: usize) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for message in session.in_flight.into_iter().map(|(_, message, _)| message).chain(session.queue) {
            let seqs = message.seqs.clone();
            if !self.publish(message) {
                self.lost.extend(seqs);
            }
        }
    }

    /// A session is lost with everything in it. `remembered`: the broker says that it is present all the same.
    pub fn lose(&mut self, id: usize, remembered: bool) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for message in session.in_flight.into_iter().map(|(_, message, _)| message).chain(session.queue) {
            self.lost.extend(message.seqs);
        }
        if remembered {
            let subscribed = session.subscribed;
            self.sessions.insert(id, Session { subscribed, node: session.node, ..Session::default() });
        }
    }

    /// The next thing to deliver within the window: first what is owed, then what is new.
    pub fn deliver(&mut self, id: usize, window: usize) -> Option<Sending> {
        let session = self.sessions.get_mut(&id).filter(|session| session.connected)?;
        if let Some((packet_id, message, on_this)) =
            session.in_flight.iter_mut().find(|(_, _, on_this)| !*on_this)
        {
            *on_this = true;
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
            session.packet_id = session.packet_id % 2_000 + 1;
            session.packet_id
        });
        if let Some(packet_id) = packet_id {
            session.in_flight.push_back((packet_id, message.clone(), true));
        }
        Some(Sending { packet_id, redelivered: false, message })
    }

    /// PUBACK: of the oldest message that is in flight on this connection and was taken, or none at all.
    pub fn acknowledged(&mut self, id: usize, packet_id: u16) -> Vec<u32> {
        let session = self.sessions.get_mut(&id).expect("a session");
        assert!(session.connected, "an acknowledgement without a connection");
        let (expected, message, on_this) = session.in_flight.pop_front().expect("somebody waits for it");
        assert_eq!(packet_id, expected, "out of order, or of another connection");
        assert!(on_this, "an acknowledgement before the message came on this connection");
        message.seqs
    }

    /// Messages that nobody has acknowledged.
    pub fn waiting(&self) -> usize {
        self.sessions.values().map(|session| session.in_flight.len() + session.queue.len()).sum()
    }
}
