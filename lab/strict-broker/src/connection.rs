//! A client's connection, from CONNECT to its close.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Disconnect, Packet, PubAck, PubAckReason, Publish, Subscribe, Unsubscribe,
};
use tokio::net::TcpStream;

use crate::broker::NOT_AUTHORIZED;
use crate::filter;
use crate::handshake::{self, Accepted};
use crate::hub::Hub;
use crate::orders::{Behaviour, Request};
use crate::packet::{Message, encode, encode_codes, encode_disconnect};
use crate::session::{Ending, Expiry};
use crate::socket::{Event, Socket};

/// Bytes of unread answers above which the broker stops reading from the client.
const OUT_BYTES_MAX: usize = 1 << 20;
const SUBACK: u8 = 0x90;
const UNSUBACK: u8 = 0xB0;

/// How the broker closes a connection.
#[derive(Debug, Default)]
struct Close {
    /// Reason code of the broker's DISCONNECT; `None`: no DISCONNECT is sent.
    code: Option<u8>,
    /// Session expiry in the client's own DISCONNECT.
    expiry: Option<Expiry>,
    /// Whether the packets in the output buffer are sent before the close.
    flushes: bool,
}

impl Close {
    fn with_code(code: u8) -> Self {
        Self { code: Some(code), flushes: true, expiry: None }
    }

    fn silent() -> Self {
        Self::default()
    }
}

#[derive(Debug)]
struct Connection<'a> {
    hub: &'a Hub,
    node: usize,
    accepted: Accepted,
    socket: Socket,
    /// Answers that are delayed on request, with the time when they are due.
    late: Vec<(Instant, BytesMut)>,
    last_read: Instant,
}

/// Serves a client until its connection ends.
pub(crate) async fn serve(stream: TcpStream, hub: Rc<Hub>, node: usize) {
    let mut socket = Socket::new(stream);
    let Some(accepted) = handshake::accept(&mut socket, &hub, node).await else {
        return socket.close().await;
    };
    let mut connection = Connection {
        hub: &hub,
        node,
        accepted,
        socket,
        late: Vec::new(),
        last_read: Instant::now(),
    };
    let close = connection.run().await;
    let Connection { mut socket, accepted: Accepted { client, link, .. }, .. } = connection;
    hub.broker.borrow_mut().close(&client, &link, close.expiry, Instant::now());
    if let Some(code) = close.code {
        encode_disconnect(code, &mut socket.out);
    }
    if close.flushes {
        socket.close().await;
    }
}

impl Connection<'_> {
    async fn run(&mut self) -> Close {
        loop {
            // Packets may have arrived together with the CONNECT.
            if let Err(close) = self.handle_packets() {
                return close;
            }
            match self.accepted.link.ending.get() {
                None => {}
                Some(Ending::TakenOver) => return Close::with_code(0x8E),
                Some(Ending::Cut) => return Close::silent(),
            }
            let Accepted { client, link, .. } = &self.accepted;
            let due = self.hub.broker.borrow_mut().write(
                client,
                link,
                &mut self.socket.out,
                Instant::now(),
            );
            let until = self.deadlines().chain(due).min();
            let reads = self.socket.out.len() < OUT_BYTES_MAX;
            let event = self.socket.event(Some(&self.accepted.link), reads, until).await;
            let now = Instant::now();
            match event {
                Event::Gone => return Close::silent(),
                Event::Read => self.last_read = now,
                Event::Wrote | Event::Woken | Event::Due => {}
            }
            if let Err(close) = self.check_deadlines(now) {
                return close;
            }
        }
    }

    fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let late = self.late.iter().map(|(at, _)| *at).min();
        [self.keep_alive_deadline(), late].into_iter().flatten()
    }

    /// Returns when the client's keep-alive expires: after 1.5 times its interval without a packet
    /// (3.1.2.10).
    fn keep_alive_deadline(&self) -> Option<Instant> {
        let keep_alive = self.accepted.keep_alive;
        (!keep_alive.is_zero()).then(|| self.last_read + keep_alive + keep_alive / 2)
    }

    fn check_deadlines(&mut self, now: Instant) -> Result<(), Close> {
        if self.keep_alive_deadline().is_some_and(|at| at <= now) {
            return Err(Close::with_code(0x8D));
        }
        for (_, answer) in self.late.extract_if(.., |(at, _)| *at <= now) {
            self.socket.out.extend_from_slice(&answer);
        }
        Ok(())
    }

    /// Handles all packets that have arrived complete.
    fn handle_packets(&mut self) -> Result<(), Close> {
        while let Some(packet) =
            self.socket.packet().map_err(|fault| Close::with_code(fault.code()))?
        {
            self.handle(packet)?;
        }
        Ok(())
    }

    fn handle(&mut self, packet: Packet) -> Result<(), Close> {
        match packet {
            Packet::Publish(publish) => self.publish(publish)?,
            Packet::PubAck(ack) => self.ack(ack.pkid),
            Packet::Subscribe(subscribe) => self.subscribe(&subscribe)?,
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(&unsubscribe),
            Packet::PingReq(_) => encode(
                &Packet::PingResp(rumqttc::v5::mqttbytes::v5::PingResp),
                &mut self.socket.out,
            ),
            Packet::Disconnect(disconnect) => return Err(self.disconnect(disconnect)),
            Packet::Connect(..)
            | Packet::ConnAck(_)
            | Packet::PubRec(_)
            | Packet::PubRel(_)
            | Packet::PubComp(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp(_)
            | Packet::Auth(_) => return Err(Close::with_code(0x82)),
        }
        Ok(())
    }

    /// Handles a PUBACK. A PUBACK makes room for a new message. If the packet id of the new message
    /// is still in use, the session is killed and the connection ends.
    fn ack(&self, packet_id: u16) {
        let Accepted { client, link, .. } = &self.accepted;
        let mut broker = self.hub.broker.borrow_mut();
        if let Some(session) = broker.session(client, link)
            && let Err(death) = session.outbox.ack(packet_id)
        {
            broker.kill(client, death.into(), Instant::now());
        }
    }

    fn publish(&mut self, mut publish: Publish) -> Result<(), Close> {
        if publish.properties.as_ref().is_some_and(|properties| properties.topic_alias.is_some()) {
            return Err(Close::with_code(0x94));
        }
        if publish.retain {
            return Err(Close::with_code(0x9A));
        }
        if publish.qos == QoS::ExactlyOnce {
            return Err(Close::with_code(0x9B));
        }
        let (packet_id, qos) = (publish.pkid, publish.qos);
        let bytes = std::mem::take(&mut publish.topic);
        let topic = std::str::from_utf8(&bytes).map_err(|_| Close::with_code(0x81))?;
        if !filter::is_topic(topic) {
            return Err(Close::with_code(0x90));
        }
        if self.hub.broker.borrow().denies(Instant::now()) {
            if qos == QoS::AtLeastOnce {
                let reason = PubAckReason::NotAuthorized;
                encode(
                    &Packet::PubAck(PubAck { pkid: packet_id, reason, properties: None }),
                    &mut self.socket.out,
                );
            }
            return Ok(());
        }
        let message = Message::new(Publish { topic: bytes.clone(), ..publish });
        let reached =
            self.hub.broker.borrow_mut().receive(topic, self.node, &message, Instant::now());
        if qos == QoS::AtLeastOnce {
            let reason =
                if reached { PubAckReason::Success } else { PubAckReason::NoMatchingSubscribers };
            encode(
                &Packet::PubAck(PubAck { pkid: packet_id, reason, properties: None }),
                &mut self.socket.out,
            );
        }
        Ok(())
    }

    fn subscribe(&mut self, subscribe: &Subscribe) -> Result<(), Close> {
        if subscribe.properties.as_ref().is_some_and(|properties| properties.id.is_some()) {
            return Err(Close::with_code(0xA1));
        }
        let client = &self.accepted.client;
        let now = Instant::now();
        let codes = if self.hub.broker.borrow().denies(now) {
            vec![NOT_AUTHORIZED; subscribe.filters.len()]
        } else {
            self.hub.broker.borrow_mut().subscribe(client, &subscribe.filters)
        };
        let behaviour = self.hub.orders.borrow_mut().take(Request::Subscribe, client);
        match behaviour {
            Some(Behaviour::Never | Behaviour::Lose) => {}
            Some(Behaviour::Late(time)) => {
                let mut late = BytesMut::new();
                encode_codes(SUBACK, subscribe.pkid, &codes, &mut late);
                self.late.push((Instant::now() + time, late));
            }
            None => encode_codes(SUBACK, subscribe.pkid, &codes, &mut self.socket.out),
        }
        Ok(())
    }

    fn unsubscribe(&mut self, unsubscribe: &Unsubscribe) {
        let codes =
            self.hub.broker.borrow_mut().unsubscribe(&self.accepted.client, &unsubscribe.filters);
        encode_codes(UNSUBACK, unsubscribe.pkid, &codes, &mut self.socket.out);
    }

    fn disconnect(&self, disconnect: Disconnect) -> Close {
        let seconds =
            disconnect.properties.and_then(|properties| properties.session_expiry_interval);
        let expiry = seconds.map(Expiry::from_seconds);
        let Accepted { client, link, .. } = &self.accepted;
        let mut broker = self.hub.broker.borrow_mut();
        let ends = broker
            .session(client, link)
            .is_some_and(|session| session.expiry == Expiry::After(Duration::ZERO));
        match expiry {
            // 3.14.2.2.2: DISCONNECT must not set an expiry above 0 if CONNECT set 0.
            Some(expiry) if ends && expiry != Expiry::After(Duration::ZERO) => {
                Close::with_code(0x82)
            }
            expiry => Close { expiry, ..Close::default() },
        }
    }
}
