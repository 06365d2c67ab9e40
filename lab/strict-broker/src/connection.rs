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
use crate::handshake::{self, Greeted};
use crate::hub::Hub;
use crate::orders::{Answer, Manner};
use crate::packet::{Message, put, put_codes, put_disconnect};
use crate::session::{Ending, Expiry};
use crate::socket::{Event, Socket};

/// Bytes of unread answers above which the broker stops reading from the client.
const OUT_BYTES_MAX: usize = 1 << 20;
const SUBACK: u8 = 0x90;
const UNSUBACK: u8 = 0xB0;

#[derive(Debug, Default)]
struct Bye {
    code: Option<u8>,
    /// Session expiry in the client's own DISCONNECT.
    expiry: Option<Expiry>,
    flushes: bool,
}

impl Bye {
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
    greeted: Greeted,
    socket: Socket,
    /// Answers that are delayed on request, with the time when they are due.
    late: Vec<(Instant, BytesMut)>,
    last_read: Instant,
}

/// Serves a client until its connection ends.
pub(crate) async fn serve(stream: TcpStream, hub: Rc<Hub>, node: usize) {
    let mut socket = Socket::new(stream);
    let Some(greeted) = handshake::greet(&mut socket, &hub, node).await else {
        return socket.farewell().await;
    };
    let mut connection = Connection {
        hub: &hub,
        node,
        greeted,
        socket,
        late: Vec::new(),
        last_read: Instant::now(),
    };
    let bye = connection.run().await;
    let Connection { mut socket, greeted: Greeted { client, link, .. }, .. } = connection;
    hub.broker.borrow_mut().close(&client, &link, bye.expiry, Instant::now());
    if let Some(code) = bye.code {
        put_disconnect(code, &mut socket.out);
    }
    if bye.flushes {
        socket.farewell().await;
    }
}

impl Connection<'_> {
    async fn run(&mut self) -> Bye {
        loop {
            // Packets may have arrived together with the CONNECT.
            if let Err(bye) = self.handle_packets() {
                return bye;
            }
            match self.greeted.link.ending.get() {
                None => {}
                Some(Ending::TakenOver) => return Bye::with_code(0x8E),
                Some(Ending::Cut) => return Bye::silent(),
            }
            let Greeted { client, link, .. } = &self.greeted;
            let due = self.hub.broker.borrow_mut().write(
                client,
                link,
                &mut self.socket.out,
                Instant::now(),
            );
            let until = self.deadlines().chain(due).min();
            let reads = self.socket.out.len() < OUT_BYTES_MAX;
            let event = self.socket.event(Some(&self.greeted.link), reads, until).await;
            let now = Instant::now();
            match event {
                Event::Gone => return Bye::silent(),
                Event::Read => self.last_read = now,
                Event::Wrote | Event::Woken | Event::Due => {}
            }
            if let Err(bye) = self.check_deadlines(now) {
                return bye;
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
        let keep_alive = self.greeted.keep_alive;
        (!keep_alive.is_zero()).then(|| self.last_read + keep_alive + keep_alive / 2)
    }

    fn check_deadlines(&mut self, now: Instant) -> Result<(), Bye> {
        if self.keep_alive_deadline().is_some_and(|at| at <= now) {
            return Err(Bye::with_code(0x8D));
        }
        for (_, answer) in self.late.extract_if(.., |(at, _)| *at <= now) {
            self.socket.out.extend_from_slice(&answer);
        }
        Ok(())
    }

    /// Handles all packets that have arrived complete.
    fn handle_packets(&mut self) -> Result<(), Bye> {
        while let Some(packet) =
            self.socket.packet().map_err(|fault| Bye::with_code(fault.code()))?
        {
            self.handle(packet)?;
        }
        Ok(())
    }

    fn handle(&mut self, packet: Packet) -> Result<(), Bye> {
        match packet {
            Packet::Publish(publish) => self.publish(publish)?,
            Packet::PubAck(ack) => self.acknowledged(ack.pkid),
            Packet::Subscribe(subscribe) => self.subscribe(&subscribe)?,
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(&unsubscribe),
            Packet::PingReq(_) => {
                put(&Packet::PingResp(rumqttc::v5::mqttbytes::v5::PingResp), &mut self.socket.out)
            }
            Packet::Disconnect(disconnect) => return Err(self.disconnect(disconnect)),
            Packet::Connect(..)
            | Packet::ConnAck(_)
            | Packet::PubRec(_)
            | Packet::PubRel(_)
            | Packet::PubComp(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp(_)
            | Packet::Auth(_) => return Err(Bye::with_code(0x82)),
        }
        Ok(())
    }

    /// Handles a PUBACK. If it kills the session, the connection ends as well.
    fn acknowledged(&self, packet_id: u16) {
        let Greeted { client, link, .. } = &self.greeted;
        let mut broker = self.hub.broker.borrow_mut();
        if let Some(session) = broker.session(client, link)
            && let Err(death) = session.outbox.acknowledged(packet_id)
        {
            broker.kill(client, death.into(), Instant::now());
        }
    }

    fn publish(&mut self, mut publish: Publish) -> Result<(), Bye> {
        if publish.properties.as_ref().is_some_and(|properties| properties.topic_alias.is_some()) {
            return Err(Bye::with_code(0x94));
        }
        if publish.retain {
            return Err(Bye::with_code(0x9A));
        }
        if publish.qos == QoS::ExactlyOnce {
            return Err(Bye::with_code(0x9B));
        }
        let (packet_id, qos) = (publish.pkid, publish.qos);
        let bytes = std::mem::take(&mut publish.topic);
        let topic = std::str::from_utf8(&bytes).map_err(|_| Bye::with_code(0x81))?;
        if !filter::is_topic(topic) {
            return Err(Bye::with_code(0x90));
        }
        if self.hub.broker.borrow().denies(Instant::now()) {
            if qos == QoS::AtLeastOnce {
                let reason = PubAckReason::NotAuthorized;
                put(
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
            put(
                &Packet::PubAck(PubAck { pkid: packet_id, reason, properties: None }),
                &mut self.socket.out,
            );
        }
        Ok(())
    }

    fn subscribe(&mut self, subscribe: &Subscribe) -> Result<(), Bye> {
        if subscribe.properties.as_ref().is_some_and(|properties| properties.id.is_some()) {
            return Err(Bye::with_code(0xA1));
        }
        let client = &self.greeted.client;
        let now = Instant::now();
        let codes = if self.hub.broker.borrow().denies(now) {
            vec![NOT_AUTHORIZED; subscribe.filters.len()]
        } else {
            self.hub.broker.borrow_mut().subscribe(client, &subscribe.filters)
        };
        let manner = self.hub.orders.borrow_mut().take(Answer::Subscribe, client);
        match manner {
            Some(Manner::Never | Manner::Lose) => {}
            Some(Manner::Late(time)) => {
                let mut late = BytesMut::new();
                put_codes(SUBACK, subscribe.pkid, &codes, &mut late);
                self.late.push((Instant::now() + time, late));
            }
            None => put_codes(SUBACK, subscribe.pkid, &codes, &mut self.socket.out),
        }
        Ok(())
    }

    fn unsubscribe(&mut self, unsubscribe: &Unsubscribe) {
        let codes =
            self.hub.broker.borrow_mut().unsubscribe(&self.greeted.client, &unsubscribe.filters);
        put_codes(UNSUBACK, unsubscribe.pkid, &codes, &mut self.socket.out);
    }

    fn disconnect(&self, disconnect: Disconnect) -> Bye {
        let asked = disconnect.properties.and_then(|properties| properties.session_expiry_interval);
        let expiry = asked.map(Expiry::from_seconds);
        let Greeted { client, link, .. } = &self.greeted;
        let mut broker = self.hub.broker.borrow_mut();
        let ends = broker
            .session(client, link)
            .is_some_and(|session| session.expiry == Expiry::After(Duration::ZERO));
        match expiry {
            // 3.14.2.2.2: a session with expiry 0 cannot be given another one in DISCONNECT.
            Some(expiry) if ends && expiry != Expiry::After(Duration::ZERO) => Bye::with_code(0x82),
            expiry => Bye { expiry, ..Bye::default() },
        }
    }
}
