//! The broker's binary, and a client that sends nothing on its own.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use lab_stack::{BrokerKind, Process};
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, Connect, ConnectProperties, Disconnect, DisconnectProperties, DisconnectReasonCode,
    Filter, Packet, PingReq, PubAck, Publish, Subscribe, SubscribeReasonCode, UnsubAckReason,
    Unsubscribe,
};
use rumqttc::v5::mqttbytes::{Error, QoS};
use tempfile::TempDir;

pub(crate) const SHARED: &str = "$share/g/drivers/+/gps";
/// Longest wait for a condition. A test that passes needs less.
const LONG: Duration = Duration::from_secs(240);

/// Waits until a condition holds, and fails after [`LONG`].
pub(crate) fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    lab_stack::wait_until(description, LONG, || Ok(condition())).unwrap();
}

/// The running broker, killed when the test ends.
pub(crate) struct Broker {
    broker: lab_stack::Broker,
    _folder: TempDir,
}

impl Broker {
    pub(crate) fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kind = BrokerKind::Strict {
            binary: env!("CARGO_BIN_EXE_strict-broker").into(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
        };
        Self {
            broker: lab_stack::Broker::start_kind(kind, folder.path()).unwrap(),
            _folder: folder,
        }
    }

    pub(crate) fn process(&self) -> &Process {
        self.broker.process()
    }

    pub(crate) fn command(&self, command: &str) -> String {
        self.broker.command(command).unwrap()
    }

    /// Returns the line about a session, from the command `sessions`.
    pub(crate) fn session(&self, client: &str) -> Option<String> {
        let lines = self.command("sessions");
        let line = lines.lines().find_map(|line| line.strip_prefix(&format!("{client} ")));
        line.map(str::to_owned)
    }

    /// Waits until the line about a session contains `state`.
    pub(crate) fn wait_for(&self, client: &str, state: &str) {
        wait_until(&format!("{client} is {state}"), || {
            self.session(client).is_some_and(|session| session.contains(state))
        });
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let lines = self.command("counters");
        let value = lines.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        value.expect(name).parse().unwrap()
    }

    /// Returns whether the broker has printed this to stderr.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.process().log().unwrap().contains(text)
    }
}

/// The CONNECT of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hello<'a> {
    pub(crate) id: &'a str,
    pub(crate) clean: bool,
    pub(crate) expiry_s: Option<u32>,
    pub(crate) window: Option<u16>,
    /// Keep-alive in seconds; 0: none.
    pub(crate) keep_alive_s: u16,
}

impl<'a> Hello<'a> {
    /// A session that ends with its connection.
    pub(crate) fn once(id: &'a str) -> Self {
        Self { id, clean: true, expiry_s: None, window: Some(32_000), keep_alive_s: 0 }
    }

    /// A session that outlives its connection by ten minutes.
    pub(crate) fn keep(id: &'a str) -> Self {
        Self { clean: false, expiry_s: Some(600), ..Self::once(id) }
    }

    fn packet(&self) -> Packet {
        let mut properties = ConnectProperties::new();
        properties.receive_maximum = self.window;
        properties.session_expiry_interval = self.expiry_s;
        let connect = Connect {
            keep_alive: self.keep_alive_s,
            client_id: self.id.to_owned(),
            clean_start: self.clean,
            properties: Some(properties),
        };
        Packet::Connect(connect, None, None)
    }
}

#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Next {
    Packet(Packet),
    Closed,
    Nothing,
}

pub(crate) struct Client {
    stream: TcpStream,
    input: BytesMut,
    /// Session Present of the CONNACK.
    pub(crate) session_present: bool,
    pub(crate) connack: Option<ConnAck>,
    last_id: u16,
}

impl Client {
    /// Sends CONNECT without waiting for the CONNACK.
    pub(crate) fn dial(broker: &Broker, hello: &Hello) -> Self {
        Self::dial_at(broker.broker.port, hello)
    }

    /// Connects to the second node of the cluster, and waits for the CONNACK.
    pub(crate) fn connect_to_second(broker: &Broker, hello: &Hello) -> Self {
        Self::dial_at(broker.broker.second_port.unwrap(), hello).receive_connack()
    }

    fn dial_at(port: u16, hello: &Hello) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self {
            stream,
            input: BytesMut::new(),
            session_present: false,
            connack: None,
            last_id: 0,
        };
        client.send(&hello.packet());
        client
    }

    pub(crate) fn connect(broker: &Broker, hello: &Hello) -> Self {
        Self::dial(broker, hello).receive_connack()
    }

    pub(crate) fn receive_connack(mut self) -> Self {
        let Next::Packet(Packet::ConnAck(connack)) = self.next(LONG) else { panic!("no CONNACK") };
        self.session_present = connack.session_present;
        self.connack = Some(connack);
        self
    }

    /// Connects, and subscribes to the group's filter.
    pub(crate) fn member(broker: &Broker, hello: &Hello) -> Self {
        let mut member = Self::connect(broker, hello);
        member.subscribe(SHARED, QoS::AtLeastOnce);
        member
    }

    /// Returns the window that the CONNACK announces.
    pub(crate) fn announced_window(&self) -> Option<u16> {
        self.connack.as_ref()?.properties.as_ref()?.receive_max
    }

    pub(crate) fn send(&mut self, packet: &Packet) {
        let mut out = BytesMut::new();
        packet.write(&mut out, None).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    /// Returns the next packet, the end of the connection, or nothing after this time.
    pub(crate) fn next(&mut self, within: Duration) -> Next {
        let until = Instant::now() + within;
        loop {
            match Packet::read(&mut self.input, None) {
                Ok(packet) => return Next::Packet(packet),
                Err(Error::InsufficientBytes(_)) => {}
                Err(error) => panic!("the broker sent bytes that are not MQTT: {error}"),
            }
            let remaining = until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Next::Nothing;
            }
            self.stream.set_read_timeout(Some(remaining)).unwrap();
            let mut bytes = [0; 64 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Next::Closed,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return Next::Closed,
            }
        }
    }

    pub(crate) fn packet(&mut self) -> Packet {
        match self.next(LONG) {
            Next::Packet(packet) => packet,
            other => panic!("expected a packet, got {other:?}"),
        }
    }

    /// Returns all packets until the connection ends. Fails if the connection does not end.
    pub(crate) fn rest(&mut self) -> Vec<Packet> {
        let mut all = Vec::new();
        loop {
            match self.next(LONG) {
                Next::Packet(packet) => all.push(packet),
                Next::Closed => return all,
                Next::Nothing => panic!("the broker has not closed the connection"),
            }
        }
    }

    /// Returns the reason code of the DISCONNECT with which the broker ends the connection.
    pub(crate) fn disconnect_reason(&mut self) -> Option<DisconnectReasonCode> {
        self.rest().into_iter().find_map(|packet| match packet {
            Packet::Disconnect(disconnect) => Some(disconnect.reason_code),
            _ => None,
        })
    }

    /// Returns the messages that the broker has for this client now. The client pings twice,
    /// because the broker has sent all messages before it answers the second ping.
    pub(crate) fn take(&mut self) -> Vec<Publish> {
        let mut all = Vec::new();
        for _ in 0..2 {
            self.send(&Packet::PingReq(PingReq));
            loop {
                match self.packet() {
                    Packet::Publish(publish) => all.push(publish),
                    Packet::PingResp(_) => break,
                    other => panic!("expected messages, got {other:?}"),
                }
            }
        }
        all
    }

    pub(crate) fn take_exactly(&mut self, count: usize) -> Vec<Publish> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.packet() {
                Packet::Publish(publish) => all.push(publish),
                other => panic!("expected messages, got {other:?}"),
            }
        }
        all
    }

    pub(crate) fn ack(&mut self, publish: &Publish) {
        self.send(&Packet::PubAck(PubAck::new(publish.pkid, None)));
    }

    pub(crate) fn ack_all(&mut self, publishes: &[Publish]) {
        for publish in publishes {
            self.ack(publish);
        }
    }

    pub(crate) fn next_id(&mut self) -> u16 {
        self.last_id = self.last_id % 60_000 + 1;
        self.last_id
    }

    /// Publishes one message, and returns the answer, if there is one.
    pub(crate) fn publish_to(
        &mut self,
        topic: &str,
        qos: QoS,
        payload: impl Into<Vec<u8>>,
    ) -> Option<Packet> {
        let mut publish = Publish::new(topic, qos, payload.into(), None);
        if qos != QoS::AtMostOnce {
            publish.pkid = self.next_id();
        }
        self.send(&Packet::Publish(publish));
        (qos != QoS::AtMostOnce).then(|| self.packet())
    }

    /// Publishes numbered messages at QoS 1, and waits until the broker has acknowledged all of
    /// them.
    pub(crate) fn publish(&mut self, numbers: std::ops::Range<usize>) {
        let mut out = BytesMut::new();
        for number in numbers.clone() {
            let topic = format!("drivers/{}/gps", number % 7);
            let mut publish = Publish::new(topic, QoS::AtLeastOnce, number.to_string(), None);
            publish.pkid = self.next_id();
            Packet::Publish(publish).write(&mut out, None).unwrap();
        }
        self.stream.write_all(&out).unwrap();
        for _ in numbers {
            let answer = self.packet();
            assert!(matches!(answer, Packet::PubAck(_)), "{answer:?}");
        }
    }

    pub(crate) fn send_subscribe(&mut self, path: &str, qos: QoS) -> u16 {
        let mut subscribe = Subscribe::new(Filter::new(path, qos), None);
        subscribe.pkid = self.next_id();
        self.send(&Packet::Subscribe(subscribe.clone()));
        subscribe.pkid
    }

    pub(crate) fn subscribe(&mut self, path: &str, qos: QoS) -> SubscribeReasonCode {
        self.send_subscribe(path, qos);
        let Packet::SubAck(answer) = self.packet() else { panic!("no SUBACK") };
        answer.return_codes[0]
    }

    pub(crate) fn unsubscribe(&mut self, path: &str) -> UnsubAckReason {
        let mut unsubscribe = Unsubscribe::new(path, None);
        unsubscribe.pkid = self.next_id();
        self.send(&Packet::Unsubscribe(unsubscribe));
        let Packet::UnsubAck(answer) = self.packet() else { panic!("no UNSUBACK") };
        answer.reasons[0]
    }

    /// Sends DISCONNECT, with a session expiry if one is given.
    pub(crate) fn disconnect(&mut self, expiry_s: Option<u32>) {
        let mut disconnect = Disconnect::new(DisconnectReasonCode::NormalDisconnection);
        disconnect.properties = expiry_s.map(|seconds| DisconnectProperties {
            session_expiry_interval: Some(seconds),
            reason_string: None,
            user_properties: Vec::new(),
            server_reference: None,
        });
        self.send(&Packet::Disconnect(disconnect));
    }

    /// Closes the connection without DISCONNECT, and waits until the broker has noticed.
    pub(crate) fn break_off(self, broker: &Broker, id: &str) {
        drop(self);
        broker.wait_for(id, "away");
    }
}

pub(crate) fn numbers(publishes: &[Publish]) -> Vec<usize> {
    publishes.iter().map(|p| std::str::from_utf8(&p.payload).unwrap().parse().unwrap()).collect()
}

pub(crate) fn ids(publishes: &[Publish]) -> Vec<u16> {
    publishes.iter().map(|publish| publish.pkid).collect()
}

pub(crate) fn sequence(numbers: std::ops::Range<usize>) -> Vec<usize> {
    numbers.collect()
}
