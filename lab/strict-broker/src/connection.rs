//! A client's connection, from its first byte to its last.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Disconnect, Packet, PubAck, PubAckReason, PubComp, PubRec, PubRecReason, PubRel, PubRelReason, Publish,
    Subscribe, Unsubscribe,
};
use tokio::net::TcpStream;

use crate::filter;
use crate::handshake::{self, Greeted};
use crate::hub::Hub;
use crate::orders::{Answer, Manner};
use crate::packet::{Message, put, put_codes, put_disconnect};
use crate::session::{Death, Ending, Expiry, Session};
use crate::socket::{Event, Socket};

/// A client that does not read its answers is not read either.
const OUT_BYTES_MAX: usize = 1 << 20;
const SUBACK: u8 = 0x90;
const UNSUBACK: u8 = 0xB0;
const NOT_AUTHORIZED: u8 = 0x87;

/// The end of a connection.
#[derive(Debug, Default)]
struct Bye {
    /// Told in a DISCONNECT.
    code: Option<u8>,
    /// What the client's own DISCONNECT says.
    expiry: Option<Expiry>,
    /// What waits is sent first.
    flushes: bool,
}

impl Bye {
    fn told(code: u8) -> Self {
        Self { code: Some(code), flushes: true, expiry: None }
    }

    fn silent() -> Self {
        Self::default()
    }
}

/// How many packets a second a client sends. What one read brings is taken, and then it is looked at: so does EMQX.
#[derive(Debug)]
struct Meter {
    rate: f64,
    left: f64,
    at: Instant,
}

impl Meter {
    fn exceeds(&mut self, packets: u32, now: Instant) -> bool {
        let since = now.duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * self.rate).min(self.rate) - f64::from(packets);
        self.at = now;
        let exceeded = self.left < 0.0;
        if exceeded {
            self.left = self.rate;
        }
        exceeded
    }
}

#[derive(Debug)]
struct Connection<'a> {
    hub: &'a Hub,
    greeted: Greeted,
    socket: Socket,
    /// Answers that are late on purpose.
    late: Vec<(Instant, BytesMut)>,
    meter: Option<Meter>,
    paused_until: Option<Instant>,
    /// When something last came.
    heard: Instant,
    /// When something last went, or nothing was to go.
    moved: Instant,
}

/// Serves a client until it is gone.
pub(crate) async fn serve(stream: TcpStream, hub: Rc<Hub>) {
    let bytes_max = usize::try_from(hub.options.max_packet_bytes).unwrap_or(usize::MAX);
    let mut socket = Socket::new(stream, bytes_max);
    let Some(greeted) = handshake::greet(&mut socket, &hub).await else {
        return socket.farewell().await;
    };
    let now = Instant::now();
    let meter = hub.options.messages_rate.map(|rate| Meter { rate, left: rate, at: now });
    let mut connection = Connection {
        hub: &hub,
        greeted,
        socket,
        late: Vec::new(),
        meter,
        paused_until: None,
        heard: now,
        moved: now,
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
        if self.greeted.closes {
            return Bye { flushes: true, ..Bye::default() };
        }
        loop {
            // What came with the CONNECT is here before anything is read.
            if let Err(bye) = self.take() {
                return bye;
            }
            match self.greeted.link.ending.get() {
                None => {}
                Some(Ending::TakenOver) if self.hub.options.no_takeover_reason => return Bye::silent(),
                Some(Ending::TakenOver) => return Bye::told(0x8E),
                Some(Ending::Kicked) => return Bye::told(0x98),
                Some(Ending::Cut) => return Bye::silent(),
            }
            let now = Instant::now();
            if self.socket.out.is_empty() {
                self.moved = now;
            }
            let Greeted { client, link, .. } = &self.greeted;
            let due = self.hub.broker.borrow_mut().write(client, link, &mut self.socket.out, now);
            let until = self.limits().chain(due).min();
            let reads = self.paused_until.is_none() && self.socket.out.len() < OUT_BYTES_MAX;
            let event = self.socket.event(Some(&self.greeted.link), reads, until).await;
            let now = Instant::now();
            match event {
                Event::Gone => return Bye::silent(),
                Event::Read => self.heard = now,
                Event::Wrote => self.moved = now,
                Event::Woken | Event::Due => {}
            }
            if let Err(bye) = self.look(now) {
                return bye;
            }
        }
    }

    /// When something is over.
    fn limits(&self) -> impl Iterator<Item = Instant> {
        let late = self.late.iter().map(|(at, _)| *at).min();
        let stuck = (!self.socket.out.is_empty()).then(|| self.moved + self.hub.options.send_timeout);
        [self.silence(), stuck, self.paused_until, late].into_iter().flatten()
    }

    /// When the client has been silent for 1.5 × what it promised.
    fn silence(&self) -> Option<Instant> {
        let keep_alive = self.greeted.keep_alive;
        (!keep_alive.is_zero()).then(|| self.heard + keep_alive + keep_alive / 2)
    }

    /// Ends what is over.
    fn look(&mut self, now: Instant) -> Result<(), Bye> {
        let stuck = !self.socket.out.is_empty() && self.moved + self.hub.options.send_timeout <= now;
        if stuck {
            return Err(Bye::silent());
        }
        if self.silence().is_some_and(|at| at <= now) {
            return Err(Bye::told(0x8D));
        }
        self.paused_until = self.paused_until.filter(|until| *until > now);
        for (_, answer) in self.late.extract_if(.., |(at, _)| *at <= now) {
            self.socket.out.extend_from_slice(&answer);
        }
        Ok(())
    }

    /// Takes all packets that are here.
    fn take(&mut self) -> Result<(), Bye> {
        let mut packets = 0;
        while let Some(packet) = self.socket.packet().map_err(|fault| Bye::told(fault.code()))? {
            packets += 1;
            self.handle(packet)?;
        }
        let now = Instant::now();
        if packets > 0
            && let Some(meter) = &mut self.meter
            && meter.exceeds(packets, now)
        {
            self.paused_until = Some(now + self.hub.options.messages_pause);
        }
        Ok(())
    }

    fn handle(&mut self, packet: Packet) -> Result<(), Bye> {
        match packet {
            Packet::Publish(publish) => self.publish(publish)?,
            Packet::PubAck(ack) => self.settle(|session| Ok(session.outbox.acknowledged(ack.pkid)?)),
            Packet::PubComp(done) => self.settle(|session| Ok(session.outbox.completed(done.pkid)?)),
            Packet::PubRec(received) => {
                let mut answer = false;
                let refused =
                    !matches!(received.reason, PubRecReason::Success | PubRecReason::NoMatchingSubscribers);
                self.settle(|session| {
                    answer = session.outbox.received(received.pkid, refused)?;
                    Ok(())
                });
                if answer {
                    put(&Packet::PubRel(PubRel::new(received.pkid, None)), &mut self.socket.out);
                }
            }
            Packet::PubRel(PubRel { pkid, reason: PubRelReason::Success, .. }) => {
                self.settle(|session| {
                    session.received.remove(&pkid);
                    Ok(())
                });
                put(&Packet::PubComp(PubComp::new(pkid, None)), &mut self.socket.out);
            }
            Packet::PubRel(_) => {}
            Packet::Subscribe(subscribe) => self.subscribe(&subscribe)?,
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(&unsubscribe)?,
            Packet::PingReq(_) => {
                put(&Packet::PingResp(rumqttc::v5::mqttbytes::v5::PingResp), &mut self.socket.out)
            }
            Packet::Disconnect(disconnect) => return Err(self.disconnect(disconnect)),
            Packet::Connect(..)
            | Packet::ConnAck(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp(_)
            | Packet::Auth(_) => return Err(Bye::told(0x82)),
        }
        Ok(())
    }

    /// Changes what the session owes; a session that dies of it takes the connection with it.
    fn settle(&mut self, change: impl FnOnce(&mut Session) -> Result<(), Death>) {
        let Greeted { client, link, .. } = &self.greeted;
        let mut broker = self.hub.broker.borrow_mut();
        if let Some(session) = broker.session(client, link)
            && let Err(death) = change(session)
        {
            broker.kill(client, death, Instant::now());
        }
    }

    fn publish(&mut self, mut publish: Publish) -> Result<(), Bye> {
        if publish.properties.as_ref().is_some_and(|properties| properties.topic_alias.is_some()) {
            return Err(Bye::told(0x94));
        }
        let (packet_id, qos) = (publish.pkid, publish.qos);
        let bytes = std::mem::take(&mut publish.topic);
        let topic = std::str::from_utf8(&bytes).map_err(|_| Bye::told(0x81))?;
        if !filter::is_topic(topic) {
            return Err(Bye::told(0x90));
        }
        let mut again = false;
        if qos == QoS::ExactlyOnce {
            self.settle(|session| {
                again = !session.received.insert(packet_id);
                Ok(())
            });
        }
        let denied = self.hub.is_starting();
        let reached = again || denied || {
            let message = Message::new(Publish { topic: bytes.clone(), ..publish });
            self.hub.broker.borrow_mut().publish(Some(&self.greeted.client), topic, message, Instant::now())
        };
        let answer = match qos {
            QoS::AtMostOnce => return Ok(()),
            QoS::AtLeastOnce => Packet::PubAck(PubAck {
                pkid: packet_id,
                reason: match (denied, reached) {
                    (true, _) => PubAckReason::NotAuthorized,
                    (false, true) => PubAckReason::Success,
                    (false, false) => PubAckReason::NoMatchingSubscribers,
                },
                properties: None,
            }),
            QoS::ExactlyOnce => Packet::PubRec(PubRec {
                pkid: packet_id,
                reason: match (denied, reached) {
                    (true, _) => PubRecReason::NotAuthorized,
                    (false, true) => PubRecReason::Success,
                    (false, false) => PubRecReason::NoMatchingSubscribers,
                },
                properties: None,
            }),
        };
        put(&answer, &mut self.socket.out);
        Ok(())
    }

    fn subscribe(&mut self, subscribe: &Subscribe) -> Result<(), Bye> {
        let Greeted { client, .. } = &self.greeted;
        let codes = if self.hub.is_starting() {
            vec![NOT_AUTHORIZED; subscribe.filters.len()]
        } else {
            let identifier = subscribe.properties.as_ref().and_then(|properties| properties.id);
            let mut broker = self.hub.broker.borrow_mut();
            broker.subscribe(client, &subscribe.filters, identifier, Instant::now())
        };
        self.answer(Answer::Subscribe, SUBACK, subscribe.pkid, codes)
    }

    fn unsubscribe(&mut self, unsubscribe: &Unsubscribe) -> Result<(), Bye> {
        let codes = self.hub.broker.borrow_mut().unsubscribe(&self.greeted.client, &unsubscribe.filters);
        self.answer(Answer::Unsubscribe, UNSUBACK, unsubscribe.pkid, codes)
    }

    /// Sends an answer as it was ordered.
    fn answer(&mut self, answer: Answer, head: u8, packet_id: u16, mut codes: Vec<u8>) -> Result<(), Bye> {
        let manner = self.hub.orders.borrow_mut().take(answer, &self.greeted.client);
        match manner {
            Some(Manner::Never | Manner::Lose) => return Ok(()),
            Some(Manner::Refuse(code)) => codes.fill(code),
            Some(Manner::Late(time)) => {
                let mut late = BytesMut::new();
                put_codes(head, packet_id, &codes, &mut late);
                self.late.push((Instant::now() + time, late));
                return Ok(());
            }
            None | Some(Manner::Close) => {}
        }
        put_codes(head, packet_id, &codes, &mut self.socket.out);
        if manner == Some(Manner::Close) { Err(Bye { flushes: true, ..Bye::default() }) } else { Ok(()) }
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
            // 3.14.2.2.2: a session that was to end cannot be made to stay.
            Some(expiry) if ends && expiry != Expiry::After(Duration::ZERO) => Bye::told(0x82),
            expiry => Bye { expiry, ..Bye::default() },
        }
    }
}
