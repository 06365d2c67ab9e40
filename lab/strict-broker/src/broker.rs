//! All sessions: their beginning, takeover and end, and the routing of messages to them.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::Filter;

use crate::filter;
use crate::mailbox::Pace;
use crate::options::Options;
use crate::outbox::{Dropped, IdInUse};
use crate::packet::Message;
use crate::router::{ClientId, Router, Target};
use crate::session::{Death, Ending, Expiry, Life, Link, OUT_BYTES_ENOUGH, Session};

/// Reason code "not authorized" of CONNACK, SUBACK and PUBACK (MQTT 5, 3.2.2.2, 3.9.3, 3.4.2.1).
pub(crate) const NOT_AUTHORIZED: u8 = 0x87;
/// Reason code "server busy" of CONNACK (3.2.2.2).
const SERVER_BUSY: u8 = 0x89;

/// A client's CONNECT, on one of the nodes.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) client: ClientId,
    pub(crate) node: usize,
    /// Clean Start: an existing session is discarded.
    pub(crate) clean_start: bool,
    /// How long the session outlives its connection.
    pub(crate) expiry: Expiry,
    /// Window in messages: the smaller of the client's Receive Maximum and `--max-inflight`.
    pub(crate) window: u16,
}

/// Result of [`Broker::open`].
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) link: Rc<Link>,
    /// Session Present of the CONNACK.
    pub(crate) present: bool,
    /// Number of messages that the session already holds.
    pub(crate) messages: usize,
}

/// The reason for which a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Expired,
    /// The connection ended, and the session's expiry was 0 from the CONNECT on.
    WithConnection,
    CleanStart,
    /// The client set the session expiry to 0 in its DISCONNECT.
    Lowered,
    Killed,
}

impl End {
    /// Returns whether the broker redispatches the session's messages to the other members of their
    /// group, as EMQX 5.8 does.
    fn redispatches(self) -> bool {
        match self {
            Self::Expired | Self::WithConnection | Self::CleanStart => true,
            Self::Lowered | Self::Killed => false,
        }
    }

    /// Returns whether the session remains a member of its groups for the time of `--dying`.
    fn lingers(self) -> bool {
        matches!(self, Self::Expired | Self::WithConnection)
    }
}

/// Message counters. As on EMQX, no counter includes the messages that a killed session held.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) received: u64,
    pub(crate) no_subscriber: u64,
    /// Messages dropped because a queue was full.
    pub(crate) dropped: Dropped,
    /// Messages held by sessions whose node was killed. EMQX has neither this counter nor
    /// `given_to_ghosts`.
    pub(crate) lost_with_node: u64,
    /// Messages given to members whose node had been killed.
    pub(crate) given_to_ghosts: u64,
    /// Number of takeovers by the other node.
    pub(crate) takeovers: u64,
    /// Messages lost within `--takeover-gap` after a takeover.
    pub(crate) lost_in_takeovers: u64,
    /// Messages acknowledged and discarded on request (`--lose-every`, `lose N`).
    pub(crate) lost_on_purpose: u64,
}

impl Counters {
    /// Returns the counters by name; EMQX's names where EMQX has the counter.
    pub(crate) fn named(&self) -> [(&'static str, u64); 10] {
        let Dropped { queue_full, qos0 } = self.dropped;
        [
            ("messages.received", self.received),
            ("messages.dropped.no_subscribers", self.no_subscriber),
            ("delivery.dropped", queue_full + qos0),
            ("delivery.dropped.queue_full", queue_full),
            ("delivery.dropped.qos0_msg", qos0),
            ("lost_with_node", self.lost_with_node),
            ("given_to_ghosts", self.given_to_ghosts),
            ("takeovers", self.takeovers),
            ("lost_in_takeovers", self.lost_in_takeovers),
            ("lost_on_purpose", self.lost_on_purpose),
        ]
    }
}

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) sessions: HashMap<ClientId, Session>,
    pub(crate) router: Router,
    pub(crate) counters: Counters,
    options: Rc<Options>,
    pace: Option<Pace>,
    /// Nodes that were killed.
    pub(crate) down: [bool; 2],
    /// Nodes that accept connections and answer nothing.
    pub(crate) hung: [bool; 2],
    /// Time until which every CONNECT, SUBSCRIBE and PUBLISH is answered with 0x87, as EMQX does
    /// around a boot and a graceful stop.
    pub(crate) denies_until: Option<Instant>,
    /// Number of messages still to discard for the control command `lose`.
    pub(crate) to_lose: u64,
    /// Client ids whose former process is not cleaned up yet, with the time of the cleanup.
    cleaning: HashMap<ClientId, Instant>,
    /// Buffer that every call of [`receive`](Self::receive) reuses.
    targets: Vec<Target>,
}

impl Broker {
    pub(crate) fn new(options: Rc<Options>) -> Self {
        Self {
            sessions: HashMap::new(),
            router: Router::new(options.strategy),
            counters: Counters::default(),
            pace: options.pace(),
            down: [false; 2],
            hung: [false; 2],
            denies_until: None,
            to_lose: 0,
            cleaning: HashMap::new(),
            options,
            targets: Vec::new(),
        }
    }

    /// Gives a connecting client its session. From now on the connection owns the session, even
    /// before the CONNACK is sent.
    pub(crate) fn open(&mut self, hello: &Hello, now: Instant) -> Opened {
        let client = &hello.client;
        if let Some(link) = self.sessions.get(client).and_then(Session::link) {
            link.end(Ending::TakenOver);
        }
        let dying = matches!(self.sessions.get(client), Some(Session { life: Life::Dying(_), .. }));
        if dying || hello.clean_start {
            self.end(client, if dying { End::Killed } else { End::CleanStart }, now);
        }
        let present = self.sessions.contains_key(client);
        let link = Rc::new(Link::default());
        let session = self
            .sessions
            .entry(Rc::clone(client))
            .or_insert_with(|| Session::new(&self.options, hello.expiry, now));
        session.life = Life::Connected(Rc::clone(&link));
        session.mailbox.set_stuck(false, now);
        session.expiry = hello.expiry;
        if session.node != hello.node {
            session.node = hello.node;
            if present {
                session.loses_until = now + self.options.takeover_gap;
                self.counters.takeovers += 1;
            }
            for (path, qos) in &session.subscriptions {
                self.router.subscribe(client, path, *qos, hello.node);
            }
        }
        let messages = session.held();
        if let Err(IdInUse) = session.outbox.resume(hello.window) {
            self.kill(client, Death::IdInUse, now);
        }
        Opened { link, present, messages }
    }

    /// Returns the reason code of CONNACK if this client id is refused now: EMQX answers "not
    /// authorized" while it starts and stops, and "busy" until the former process of the client id
    /// is cleaned up.
    pub(crate) fn refusal(&self, client: &ClientId, now: Instant) -> Option<u8> {
        if self.denies(now) {
            return Some(NOT_AUTHORIZED);
        }
        self.cleaning.get(client).is_some_and(|until| now < *until).then_some(SERVER_BUSY)
    }

    pub(crate) fn denies(&self, now: Instant) -> bool {
        self.denies_until.is_some_and(|until| now < until)
    }

    /// Returns the session if this connection still owns it.
    pub(crate) fn session(&mut self, client: &ClientId, link: &Rc<Link>) -> Option<&mut Session> {
        let session = self.sessions.get_mut(client)?;
        session.link().is_some_and(|current| Rc::ptr_eq(current, link)).then_some(session)
    }

    /// Handles the end of a connection. `expiry`: the session expiry in the client's DISCONNECT.
    pub(crate) fn close(
        &mut self,
        client: &ClientId,
        link: &Rc<Link>,
        expiry: Option<Expiry>,
        now: Instant,
    ) {
        let Some(session) = self.session(client, link) else { return };
        session.outbox.suspend();
        session.mailbox.set_stuck(false, now);
        let before = session.expiry;
        session.expiry = expiry.unwrap_or(before);
        match session.expiry {
            Expiry::Never => session.life = Life::Away(None),
            Expiry::After(Duration::ZERO) => {
                let lowered = before != session.expiry;
                if !self.options.cleanup.is_zero() {
                    self.cleaning.insert(Rc::clone(client), now + self.options.cleanup);
                }
                self.end(client, if lowered { End::Lowered } else { End::WithConnection }, now);
            }
            Expiry::After(time) => session.life = Life::Away(Some(now + time)),
        }
    }

    /// Ends a session, and its connection if it has one.
    pub(crate) fn end(&mut self, client: &ClientId, reason: End, now: Instant) {
        let Some(mut session) = self.sessions.remove(client) else { return };
        if let Some(link) = session.link() {
            match reason {
                End::CleanStart => link.end(Ending::TakenOver),
                End::Killed | End::Expired | End::WithConnection | End::Lowered => {
                    link.end(Ending::Cut)
                }
            }
        }
        let shared = if reason.redispatches() { session.outbox.take_shared() } else { Vec::new() };
        let lingers = reason.lingers() && !self.options.dying.is_zero();
        for path in session.subscriptions.keys() {
            self.router.unsubscribe(client, path);
        }
        // Messages of a group without another member have no target: they are lost.
        let redispatched: Vec<(Target, Message)> = shared
            .into_iter()
            .filter_map(|message| Some((self.router.member(message.share.as_deref()?)?, message)))
            .collect();
        if lingers {
            for (path, qos) in &session.subscriptions {
                self.router.subscribe(client, path, *qos, session.node);
            }
            session.forget();
            session.life = Life::Dying(now + self.options.dying);
            self.sessions.insert(Rc::clone(client), session);
        }
        for (target, message) in redispatched {
            self.deliver(&target, &message, now);
        }
    }

    /// Kills a session as EMQX kills a process: without a DISCONNECT, a counter, or redispatch.
    pub(crate) fn kill(&mut self, client: &ClientId, death: Death, now: Instant) {
        eprintln!("strict-broker: session {client} killed: {death:?}");
        self.end(client, End::Killed, now);
    }

    /// Simulates kill -9 of a node: its connections and sessions end, and its shared subscriptions
    /// stay as ghosts.
    pub(crate) fn kill_node(&mut self, node: usize) {
        self.down[node] = true;
        let is_on_node = |(client, session): (&ClientId, &Session)| {
            (session.node == node).then(|| Rc::clone(client))
        };
        let clients: Vec<ClientId> = self.sessions.iter().filter_map(is_on_node).collect();
        self.router.kill_node(node, &clients);
        for session in clients.iter().filter_map(|client| self.sessions.remove(client)) {
            self.counters.lost_with_node += session.held() as u64;
            if let Some(link) = session.link() {
                link.end(Ending::Cut);
            }
        }
    }

    /// Restarts a killed node without its former sessions, or resumes a hung node.
    pub(crate) fn start_node(&mut self, node: usize) {
        (self.down[node], self.hung[node]) = (false, false);
        self.router.purge_node(node);
    }

    /// Routes a message from a client of this node. Returns `false` if no session is subscribed.
    pub(crate) fn receive(
        &mut self,
        topic: &str,
        node: usize,
        message: &Message,
        now: Instant,
    ) -> bool {
        let mut targets = std::mem::take(&mut self.targets);
        self.router.targets(topic, node, &mut targets);
        let reached = !targets.is_empty();
        self.counters.received += 1;
        self.counters.no_subscriber += u64::from(!reached);
        if reached && self.decide_loss() {
            self.counters.lost_on_purpose += 1;
            targets.clear();
            self.targets = targets;
            return true;
        }
        for target in targets.drain(..) {
            self.deliver(&target, message, now);
        }
        self.targets = targets;
        reached
    }

    /// Decides whether this message is acknowledged and discarded; if so, counts down `to_lose`.
    fn decide_loss(&mut self) -> bool {
        if self.to_lose > 0 {
            self.to_lose -= 1;
            return true;
        }
        self.options
            .lose_every
            .is_some_and(|every| self.counters.received.is_multiple_of(every.get()))
    }

    fn deliver(&mut self, target: &Target, message: &Message, now: Instant) {
        let Some(client) = &target.client else {
            self.counters.given_to_ghosts += 1;
            return;
        };
        let Some(session) = self.sessions.get_mut(client) else { return };
        if now < session.loses_until {
            self.counters.lost_in_takeovers += 1;
            return;
        }
        let qos = if message.qos < target.qos { message.qos } else { target.qos };
        let message = Message { qos, share: target.share.clone(), ..message.clone() };
        match session.deliver(message, now, self.pace) {
            Ok(dropped) => self.counters.dropped += dropped,
            Err(death) => self.kill(client, death, now),
        }
    }

    /// Adds the filters to the session's subscriptions, and returns the reason codes.
    pub(crate) fn subscribe(&mut self, client: &ClientId, filters: &[Filter]) -> Vec<u8> {
        filters.iter().map(|requested| self.subscribe_one(client, requested)).collect()
    }

    fn subscribe_one(&mut self, client: &ClientId, requested: &Filter) -> u8 {
        if filter::parse(&requested.path).is_none() {
            return 0x8F; // Topic Filter invalid
        }
        // Unspecified error: the session was killed.
        let Some(session) = self.sessions.get_mut(client) else { return 0x80 };
        let qos = if requested.qos == QoS::AtMostOnce { QoS::AtMostOnce } else { QoS::AtLeastOnce };
        session.subscriptions.insert(requested.path.clone(), qos);
        self.router.subscribe(client, &requested.path, qos, session.node);
        qos as u8
    }

    /// Removes the subscriptions to these filters, and returns the reason codes.
    pub(crate) fn unsubscribe(&mut self, client: &ClientId, filters: &[String]) -> Vec<u8> {
        let Some(session) = self.sessions.get_mut(client) else { return vec![0x80; filters.len()] };
        let removed: Vec<bool> =
            filters.iter().map(|path| session.subscriptions.remove(path).is_some()).collect();
        for path in filters {
            self.router.unsubscribe(client, path);
        }
        // 0x11: No subscription existed.
        removed.into_iter().map(|existed| if existed { 0 } else { 0x11 }).collect()
    }

    /// Advances the process of a connected session to `now`. Returns the time at which the process
    /// will have handled the next message.
    pub(crate) fn advance(
        &mut self,
        client: &ClientId,
        link: &Rc<Link>,
        now: Instant,
    ) -> Option<Instant> {
        let pace = self.pace?;
        let session = self.session(client, link)?;
        let outcome = session.advance(now, pace);
        let due = session.mailbox.due(pace);
        match outcome {
            Ok(dropped) => self.counters.dropped += dropped,
            Err(death) => self.kill(client, death, now),
        }
        due
    }

    /// Writes the messages of a connection into `out`. Returns the time at which there may be more
    /// messages.
    pub(crate) fn write(
        &mut self,
        client: &ClientId,
        link: &Rc<Link>,
        out: &mut BytesMut,
        now: Instant,
    ) -> Option<Instant> {
        let stuck = out.len() >= OUT_BYTES_ENOUGH;
        self.session(client, link)?.mailbox.set_stuck(stuck, now);
        if stuck {
            return None;
        }
        let due = self.advance(client, link, now);
        self.session(client, link)?.write(out);
        due
    }

    /// Ends expired sessions, and advances the processes of sessions without a connection.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.cleaning.retain(|_, until| now < *until);
        let mut ends = Vec::new();
        let mut all = Dropped::default();
        for (client, session) in &mut self.sessions {
            match session.life {
                Life::Connected(_) => continue,
                Life::Away(Some(until)) if until <= now => {
                    ends.push((Rc::clone(client), End::Expired))
                }
                Life::Dying(until) if until <= now => ends.push((Rc::clone(client), End::Killed)),
                Life::Away(_) | Life::Dying(_) => {}
            }
            // Without a connection no message is assigned a packet id, so the error "id in use"
            // cannot occur.
            if let Some(Ok(dropped)) = self.pace.map(|pace| session.advance(now, pace)) {
                all += dropped;
            }
        }
        self.counters.dropped += all;
        for (client, reason) in ends {
            self.end(&client, reason, now);
        }
    }

    /// Discards the messages and subscriptions of a session.
    pub(crate) fn forget(&mut self, client: &ClientId) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        session.forget();
        for path in std::mem::take(&mut session.subscriptions).into_keys() {
            self.router.unsubscribe(client, &path);
        }
    }
}
