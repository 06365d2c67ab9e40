//! Tests how milepost reacts to a broker that refuses a part of a subscription, or sends hostile
//! messages, garbage or nothing. No real broker does this on demand.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bytes::{BufMut as _, BytesMut};
use lab_stack::{Settings, wait_until};
use rumqttc::v5::mqttbytes::Error as PacketError;
use rumqttc::v5::mqttbytes::v5::{Packet, PubRecReason};

use crate::world::{SOON, World, settings, world};

/// Observations of the scripted broker, by connection.
#[derive(Default)]
pub struct Observations {
    /// Time at which each connection began.
    pub connections: Vec<Instant>,
    /// Acknowledged packet ids of each connection.
    pub acked: Vec<Vec<u16>>,
    /// Times of the PINGREQs of each connection.
    pings: Vec<Vec<Instant>>,
}

/// A broker that runs the script of a test.
pub struct ScriptedBroker {
    pub port: u16,
    seen: Arc<Mutex<Observations>>,
}

impl ScriptedBroker {
    /// Starts a broker that runs `serve` on a new thread for each connection, except for visits:
    /// the broker itself answers the connections with which milepost looks for former sessions.
    pub fn start(serve: impl Fn(&mut Peer) -> Result<()> + Send + Sync + 'static) -> Result<Self> {
        Self::serve(true, serve)
    }

    /// Like `start`, but for scripts that expect only the connections of sessions. `run` opens
    /// another connection to look for further nodes of the broker: the broker closes it, and does
    /// not record it.
    pub fn start_for_sessions(
        serve: impl Fn(&mut Peer) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::serve(false, serve)
    }

    /// Starts the broker. If `serves_checks` is false, the broker closes connections that look for
    /// further nodes.
    fn serve(
        serves_checks: bool,
        serve: impl Fn(&mut Peer) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let seen = Arc::<Mutex<Observations>>::default();
        let (observations, serve) = (Arc::clone(&seen), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, serve) = (Arc::clone(&observations), Arc::clone(&serve));
                std::thread::spawn(move || {
                    let mut peer = Peer { stream, index: None, seen, input: BytesMut::new() };
                    let client_id = peer.client_id()?;
                    if is_visit(&client_id) {
                        return peer.answer_visit();
                    }
                    if !serves_checks && client_id.contains("-check-") {
                        return Ok(());
                    }
                    peer.index = Some(peer.record_connection());
                    serve(&mut peer)
                });
            }
        });
        Ok(Self { port, seen })
    }

    pub fn seen(&self) -> MutexGuard<'_, Observations> {
        lock(&self.seen)
    }

    /// Returns settings of a milepost between this broker and the engine.
    pub fn settings(&self, world: &World) -> Settings {
        settings(world.folder.path(), self.port, &world.engine.server.url())
            .with("CLICKHOUSE__DATABASE", &world.database)
            .with("MQTT__CONNECTIONS", "1")
            .with("LAB__CONNECT_TIMEOUT", "5s")
    }
}

/// Returns whether a client id is that of a visit. A milepost with a single session visits the ids
/// `NAME-1` to `NAME-63` in search of former sessions.
fn is_visit(client_id: &str) -> bool {
    client_id.rsplit_once('-').is_some_and(|(_, number)| number != "0" && number.len() <= 2)
}

fn lock(seen: &Mutex<Observations>) -> MutexGuard<'_, Observations> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The broker's end of a connection.
pub struct Peer {
    stream: TcpStream,
    /// Index among the connections that the script serves. `None` for a visit, and before the
    /// connection is recorded.
    index: Option<usize>,
    seen: Arc<Mutex<Observations>>,
    input: BytesMut,
}

impl Peer {
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Records the connection, and returns its index.
    fn record_connection(&self) -> usize {
        let mut seen = lock(&self.seen);
        seen.connections.push(Instant::now());
        seen.acked.push(Vec::new());
        seen.pings.push(Vec::new());
        seen.connections.len() - 1
    }

    /// Returns the index of this connection among those that the script serves.
    pub fn connection_index(&self) -> usize {
        self.index.expect("a visit has no index")
    }

    /// Adds an observation about this connection; ignores visits.
    fn record(&self, add: impl FnOnce(&mut Observations, usize)) {
        if let Some(index) = self.index {
            add(&mut lock(&self.seen), index);
        }
    }

    /// Reads ahead to the client id of the next CONNECT.
    pub fn client_id(&mut self) -> Result<String> {
        loop {
            match Packet::read(&mut self.input.clone(), None) {
                Ok(Packet::Connect(connect, ..)) => return Ok(connect.client_id),
                Ok(other) => bail!("expected CONNECT, got {other:?}"),
                Err(PacketError::InsufficientBytes(_)) => self.read()?,
                Err(error) => bail!("not MQTT: {error}"),
            }
        }
    }

    /// Answers a visit: the CONNACK says that there is no session of this client id.
    fn answer_visit(&mut self) -> Result<()> {
        self.receive()?;
        self.send(&[0x20, 3, 0, 0, 0])?;
        self.answer_pings()
    }

    fn read(&mut self) -> Result<()> {
        let mut chunk = [0; 4096];
        let read = self.stream.read(&mut chunk)?;
        ensure!(read > 0, "the client closed the connection");
        self.input.extend_from_slice(&chunk[..read]);
        Ok(())
    }

    /// Reads the next packet; records acknowledgements and pings.
    pub fn receive(&mut self) -> Result<Packet> {
        loop {
            let packet = match Packet::read(&mut self.input, None) {
                Ok(packet) => packet,
                Err(PacketError::InsufficientBytes(_)) => {
                    self.read()?;
                    continue;
                }
                Err(error) => bail!("not MQTT: {error}"),
            };
            if let Packet::PubAck(ack) = &packet {
                self.record(|seen, index| seen.acked[index].push(ack.pkid));
            }
            if let Packet::PingReq(_) = &packet {
                self.record(|seen, index| seen.pings[index].push(Instant::now()));
            }
            return Ok(packet);
        }
    }

    /// Accepts the connection with these properties of the CONNACK, and answers the SUBSCRIBE with
    /// these reason codes, one for each filter.
    pub fn welcome(&mut self, properties: &[u8], codes: &[u8]) -> Result<()> {
        self.receive()?;
        let length = u8::try_from(properties.len())?;
        self.send(&[&[0x20, 3 + length, 0, 0, length], properties].concat())?;
        let Packet::Subscribe(subscribe) = self.receive()? else { bail!("no SUBSCRIBE") };
        let [high, low] = subscribe.pkid.to_be_bytes();
        let length = 3 + u8::try_from(codes.len())?;
        self.send(&[&[0x90, length, high, low, 0], codes].concat())
    }

    /// Reads packets and answers pings until the client disconnects.
    pub fn answer_pings(&mut self) -> Result<()> {
        loop {
            if let Packet::PingReq(_) = self.receive()? {
                self.send(&[0xD0, 0])?; // PINGRESP
            }
        }
    }
}

/// Encodes a PUBLISH at QoS 1. `properties`: arbitrary bytes, including their length.
fn publish(topic: &[u8], packet_id: u16, properties: &[u8], payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u8(0x32);
    put_varint(2 + topic.len() + 2 + properties.len() + payload.len(), &mut out);
    out.put_u16(u16::try_from(topic.len()).expect("the topic is short enough"));
    out.put_slice(topic);
    out.put_u16(packet_id);
    out.put_slice(properties);
    out.put_slice(payload);
    out
}

fn put_varint(mut value: usize, out: &mut BytesMut) {
    loop {
        let low = u8::try_from(value % 128).expect("seven bits");
        value /= 128;
        out.put_u8(if value > 0 { low | 0x80 } else { low });
        if value == 0 {
            return;
        }
    }
}

/// Encodes a PUBLISH at QoS 1 of a fix of d1, whose `seq` is the packet id.
pub fn fix(packet_id: u16) -> BytesMut {
    publish(b"drivers/d1/gps", packet_id, &[0], &payload(packet_id))
}

fn payload(seq: u16) -> Vec<u8> {
    format!(r#"{{"lat":1,"lng":2,"seq":{seq}}}"#).into_bytes()
}

#[test]
fn partly_refused_subscription_acks_only_stored_messages() -> Result<()> {
    let world = world("refused")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[], &[1, 0x87])?; // QoS 1; not authorized
        peer.send(&(1..=10).flat_map(fix).collect::<Vec<u8>>())?;
        peer.answer_pings()
    })?;
    let mut milepost =
        broker.settings(&world).with("MQTT__TOPICS", "drivers/+/gps,other/+").start()?;
    wait_until("milepost has connected three times", SOON, || {
        Ok(broker.seen().connections.len() >= 3)
    })?;
    wait_until("/readyz names the refusal", SOON, || {
        Ok(milepost.get("/readyz").is_err_and(|error| error.to_string().contains("not authorized")))
    })?;
    std::thread::sleep(Duration::from_millis(300));
    let acked: usize = broker.seen().acked.iter().map(Vec::len).sum();
    let stored = world.query("SELECT uniqExact(seq) FROM {db}.fixes")?.parse::<usize>()?;
    ensure!(acked <= stored, "{acked} acknowledged, {stored} stored");
    milepost.terminate(SOON).map(drop)
}

/// Returns hostile messages, whose packet ids are even, and the expected result of each message.
/// The result is `stored`, or describes the reject: its reason, the size of the payload in bytes,
/// and how many of these bytes are stored.
fn hostile_messages() -> Vec<(BytesMut, &'static str)> {
    let gps = b"drivers/d1/gps";
    let mut many_properties = BytesMut::new();
    put_varint(300 * 9, &mut many_properties);
    many_properties.put_slice(&b"\x26\x00\x02ab\x00\x02cd".repeat(300));
    let mut huge_properties = BytesMut::new();
    put_varint(2_000_000, &mut huge_properties);
    huge_properties.put_bytes(0x26, 2_000_000);
    let large = [payload(99), vec![b' '; 3_000_000]].concat();
    let (above_limit, long_topic) = ([payload(10), vec![b' '; 9_000]].concat(), vec![b'x'; 65_535]);
    vec![
        (publish(gps, 2, b"\x07\x26\x00\x01\xFF\x00\x01\xFE", &payload(2)), "stored"),
        (publish(gps, 4, &many_properties, &payload(4)), "stored"),
        (publish(gps, 6, &[0], &large), "too_large 3000026 65536"),
        (publish(gps, 8, b"\x7F", &payload(8)), "invalid_json 26 26"),
        (publish(gps, 10, &[0], &above_limit), "too_large 9026 9026"),
        (publish(&long_topic, 12, &[0], &payload(12)), "bad_topic 26 26"),
        (publish(gps, 14, &huge_properties, &payload(14)), "stored"),
        (publish(gps, 16, b"\xFF\xFF\xFF\xFF\xFF", &[]), "invalid_utf8 5 5"),
        (publish(b"", 18, &[0], &payload(18)), "bad_topic 26 26"),
        (publish(gps, 20, &[], &[]), "empty 0 0"),
    ]
}

#[test]
fn hostile_message_harms_neither_connection_nor_neighbours() -> Result<()> {
    let world = world("harm")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[], &[1])?;
        for (index, (packet, _)) in (1_u16..).step_by(2).zip(hostile_messages()) {
            peer.send(&fix(index))?;
            peer.send(&packet)?;
        }
        peer.send(&fix(21))?;
        peer.answer_pings()
    })?;
    let settings = broker.settings(&world).with("MQTT__MAX_PACKET_BYTES", "4096");
    let mut milepost = settings.start()?;
    wait_until("everything is acknowledged", SOON, || {
        Ok(broker.seen().acked.first().is_some_and(|acked| acked.len() >= 21))
    })?;

    let stored: Vec<u16> = hostile_messages()
        .iter()
        .zip((2_u16..).step_by(2))
        .filter(|((_, result), _)| *result == "stored")
        .map(|(_, seq)| seq)
        .chain((1..=21).step_by(2))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let found =
        world.query("SELECT groupArray(seq) FROM (SELECT seq FROM {db}.fixes ORDER BY seq)")?;
    assert_eq!(found, format!("{stored:?}").replace(' ', ""));

    let mut expected = BTreeMap::<&str, usize>::new();
    for (_, result) in hostile_messages() {
        if result != "stored" {
            *expected.entry(result).or_default() += 1;
        }
    }
    let rejects = world.query(
        "SELECT concat(reason, ' ', toString(payload_bytes), ' ', toString(length(payload))) AS \
         line, toString(sum(count)) FROM {rejects} GROUP BY line ORDER BY line",
    )?;
    let expected: Vec<String> =
        expected.iter().map(|(line, count)| format!("{line}\t{count}")).collect();
    assert_eq!(rejects.lines().collect::<Vec<_>>(), expected);

    assert_eq!(milepost.terminate(SOON)?, 0, "every message must be acknowledged");
    let seen = broker.seen();
    assert_eq!(
        seen.acked,
        [(1..=21).collect::<Vec<u16>>()],
        "each message must be acknowledged once, in order, on one connection"
    );
    Ok(())
}

#[test]
fn garbage_refusals_and_takeover_are_logged_and_survived() -> Result<()> {
    let world = world("garbage")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        match peer.connection_index() {
            // An answer that is not MQTT.
            0 => peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")?,
            1 => {
                peer.receive()?;
                peer.send(&[0x20, 3, 0, 0x86, 0])?; // CONNACK: bad user name or password
            }
            // Random bytes after a fix.
            2 => {
                peer.welcome(&[], &[1])?;
                let mut random = fastrand::Rng::with_seed(2);
                let noise: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
                peer.send(&[&fix(1)[..], &noise].concat())?;
            }
            _ => {
                peer.welcome(&[], &[1])?;
                peer.send(&fix(2))?;
                wait_until("the fix is acknowledged", SOON, || {
                    peer.receive()?;
                    Ok(!lock(&peer.seen).acked[peer.connection_index()].is_empty())
                })?;
                peer.send(&[0xE0, 1, 0x8E])?; // session taken over
            }
        }
        peer.answer_pings()
    })?;
    let mut milepost = broker.settings(&world).start()?;
    wait_until("the takeover is reported", SOON, || {
        Ok(milepost
            .get("/readyz")
            .is_err_and(|error| error.to_string().contains("another client connected"))
            || milepost.process.log()?.contains("another client connected"))
    })?;
    ensure!(milepost.get("/livez").is_ok(), "milepost is not alive");
    let log = milepost.process.log()?;
    for line in ["does it speak MQTT", "bad user name or password; set mqtt.username"] {
        ensure!(log.contains(line), "{line:?} is not in: {log}");
    }
    ensure!(!log.contains("panicked"), "{log}");
    let connections = broker.seen().connections.clone();
    assert_eq!(connections.len(), 4, "after a takeover, milepost must wait for half a minute");
    let elapsed = connections[3] - connections[0];
    ensure!(elapsed >= Duration::from_millis(800), "four connections in {elapsed:?}: no backoff");
    milepost.terminate(SOON).map(drop)
}

/// EMQX before 5.8 redelivers on the same connection every 30 s.
#[test]
fn redelivery_on_the_same_connection_is_acked_once() -> Result<()> {
    let world = world("copies")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[], &[1])?;
        let mut copy = fix(1);
        copy[0] |= 0x08; // DUP
        peer.send(&[&fix(1)[..], &copy, &fix(2), &copy].concat())?;
        peer.answer_pings()
    })?;
    let mut milepost = broker.settings(&world).start()?;
    wait_until("the last message is acknowledged", SOON, || {
        Ok(broker.seen().acked.first().is_some_and(|acked| acked.contains(&2)))
    })?;
    assert_eq!(milepost.metric("messages_received_total")?, 2.0);
    let log = milepost.process.log()?;
    ensure!(log.contains("milepost ignores the copies"), "{log}");
    assert_eq!(milepost.terminate(SOON)?, 0);
    assert_eq!(broker.seen().acked, [[1, 2]]);
    Ok(())
}

#[test]
fn session_is_resumed_before_a_shortened_expiry() -> Result<()> {
    let world = world("granted")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[0x11, 0, 0, 0, 12], &[1])?; // Session Expiry Interval: 12 s
        if peer.connection_index() == 0 {
            peer.send(&[0xE0, 1, 0x8E])?; // session taken over
        }
        peer.answer_pings()
    })?;
    let mut milepost = broker.settings(&world).with("MQTT__SESSION_EXPIRY", "2m").start()?;
    wait_until("milepost has connected again", SOON, || Ok(broker.seen().connections.len() == 2))?;
    let connections = broker.seen().connections.clone();
    let elapsed = connections[1] - connections[0];
    ensure!(elapsed < Duration::from_secs(12), "reconnected after {elapsed:?}");
    milepost.terminate(SOON).map(drop)
}

/// Encodes the Server Keep Alive of a CONNACK.
const fn server_keep_alive(seconds: u8) -> [u8; 3] {
    [0x13, 0, seconds]
}

#[test]
fn pings_follow_the_brokers_keep_alive_or_else_the_configured_one() -> Result<()> {
    let world = world("pings")?;
    let (frequent, no_keep_alive) = (server_keep_alive(3), server_keep_alive(0));
    let frequent = ScriptedBroker::start_for_sessions(move |peer| {
        peer.welcome(&frequent, &[1]).and_then(|()| peer.answer_pings())
    })?;
    let no_keep_alive = ScriptedBroker::start_for_sessions(move |peer| {
        peer.welcome(&no_keep_alive, &[1]).and_then(|()| peer.answer_pings())
    })?;
    let mut mileposts = Vec::new();
    for broker in [&frequent, &no_keep_alive] {
        mileposts.push(broker.settings(&world).with("LAB__KEEP_ALIVE", "5s").start()?);
    }
    wait_until("both mileposts have pinged a few times", 2 * SOON, || {
        let pings = |broker: &ScriptedBroker| broker.seen().pings.first().map_or(0, Vec::len);
        Ok(pings(&frequent) >= 4 && pings(&no_keep_alive) >= 4)
    })?;
    // Pings are sent after three quarters of the keep-alive: 2.25 s and 3.75 s.
    for (broker, at_most) in [(&frequent, 3_200), (&no_keep_alive, 5_000)] {
        let seen = broker.seen();
        assert_eq!(seen.connections.len(), 1);
        let mut gaps: Vec<Duration> =
            seen.pings[0].windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_unstable();
        let median = gaps[gaps.len() / 2];
        ensure!(median <= Duration::from_millis(at_most), "{median:?} between two pings");
    }
    for mut milepost in mileposts {
        milepost.terminate(SOON)?;
    }
    Ok(())
}

#[test]
fn unresponsive_broker_is_disconnected() -> Result<()> {
    let world = world("silence")?;
    let silent = ScriptedBroker::start_for_sessions(|_| {
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    })?;
    let hung = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&server_keep_alive(1), &[1])?;
        if peer.connection_index() > 2 {
            return peer.answer_pings();
        }
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    })?;
    let mut silent_milepost = silent.settings(&world).start()?;
    let mut hung_milepost = hung.settings(&world).start()?;
    wait_until("both mileposts reconnect several times", 2 * SOON, || {
        Ok(silent.seen().connections.len() >= 2 && hung.seen().connections.len() >= 4)
    })?;
    let log = silent_milepost.process.log()?;
    ensure!(log.contains("no CONNACK within 5s"), "{log}");
    ensure!(log.contains("the connection hangs: no byte received for"), "{log}");
    // Other tests slow the machine down, so check only the shortest time between two connections.
    let waited = hung.seen().connections.windows(2).map(|pair| pair[1] - pair[0]).min();
    ensure!(waited < Some(Duration::from_secs(15)), "{waited:?} for a keep-alive of a second");
    assert_eq!(
        silent_milepost.terminate(SOON)?,
        0,
        "milepost exits even while it waits for CONNACK"
    );
    hung_milepost.terminate(SOON).map(drop)
}

/// Encodes a packet that has only a packet id, such as PUBREL. `first`: the first byte of the
/// packet, with its type.
fn id_packet(first: u8, packet_id: u16) -> Vec<u8> {
    [&[first, 2][..], &packet_id.to_be_bytes()].concat()
}

#[test]
fn qos_2_message_is_refused_and_the_connection_stays() -> Result<()> {
    let world = world("qos2")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[], &[1])?;
        // A resumed session may begin in the middle of a handshake of QoS 2: with a PUBREL.
        peer.send(&id_packet(0x62, 900))?;
        ensure!(
            matches!(peer.receive()?, Packet::PubComp(done) if done.pkid == 900),
            "PUBREL is not answered"
        );
        let mut at_qos_2 = fix(7);
        at_qos_2[0] = 0x34; // PUBLISH at QoS 2
        peer.send(&at_qos_2)?;
        let refusal = peer.receive()?;
        ensure!(
            matches!(
                &refusal,
                Packet::PubRec(refused) if refused.pkid == 7
                    && refused.reason == PubRecReason::ImplementationSpecificError
            ),
            "PUBREC must refuse the message: {refusal:?}"
        );
        peer.send(&fix(8))?;
        peer.answer_pings()
    })?;
    let mut milepost = broker.settings(&world).start()?;
    wait_until("the message at QoS 1 is acknowledged", SOON, || {
        Ok(broker.seen().acked.first().is_some_and(|acked| acked == &[8]))
    })?;
    assert_eq!(
        world.query("SELECT groupArray(seq) FROM (SELECT seq FROM {db}.fixes ORDER BY seq)")?,
        "[8]"
    );
    assert_eq!(broker.seen().connections.len(), 1, "the connection must stay");
    let log = milepost.process.log()?;
    ensure!(log.contains("the broker sends messages at QoS 2"), "{log}");
    milepost.terminate(SOON).map(drop)
}

#[test]
fn silent_early_disconnect_is_logged_with_the_likely_cause() -> Result<()> {
    let world = world("short")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| peer.welcome(&[], &[1]))?;
    let mut milepost = broker.settings(&world).start()?;
    let cause = "another process uses this mqtt.client_id";
    wait_until("the log names the cause", SOON, || Ok(milepost.process.log()?.contains(cause)))?;
    wait_until("/readyz reports the lost connection", SOON, || {
        Ok(milepost.get("/readyz").is_err_and(|error| error.to_string().contains("no connection")))
    })?;
    milepost.terminate(SOON).map(drop)
}

#[test]
fn message_of_an_older_subscription_is_rejected_with_a_hint() -> Result<()> {
    let world = world("older_subscription")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[], &[1])?;
        peer.send(&publish(b"cars/d1/gps", 1, &[0], &payload(1)))?;
        peer.send(&fix(2))?;
        peer.answer_pings()
    })?;
    let mut milepost = broker.settings(&world).start()?;
    wait_until("both messages are acknowledged", SOON, || {
        Ok(broker.seen().acked.first().is_some_and(|acked| acked == &[1, 2]))
    })?;
    assert_eq!(world.query("SELECT groupArray(seq) FROM {db}.fixes")?, "[2]");
    assert_eq!(
        world.query("SELECT groupArray((reason, topic)) FROM {rejects}")?,
        "[('bad_topic','cars/d1/gps')]"
    );
    let log = milepost.process.log()?;
    ensure!(log.contains("choose another mqtt.client_id"), "{log}");
    milepost.terminate(SOON).map(drop)
}
