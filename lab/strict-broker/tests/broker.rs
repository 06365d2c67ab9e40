//! The broker's promises, seen by a real client (rumqttc).

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{ConnAck, ConnectProperties, Packet, Publish};
use rumqttc::v5::{AsyncClient, Event, MqttOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const SHARED: &str = "$share/g/drivers/+/gps";
/// Nothing more is coming: an exchange on the loopback takes a few milliseconds.
const QUIET: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(60);

/// The binary, ended when the test ends.
struct Broker {
    process: Child,
    port: u16,
}

impl Broker {
    async fn start(options: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(env!("CARGO_BIN_EXE_strict-broker"))
            .args(["--port", &port.to_string()])
            .args(options)
            .spawn()
            .unwrap();
        let broker = Self { process, port };
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
        broker
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One connection: what arrives, with nothing acknowledged by itself.
struct Client {
    client: AsyncClient,
    connack: ConnAck,
    arrived: Receiver<Publish>,
    pubacks: Receiver<()>,
    driver: JoinHandle<()>,
}

impl Client {
    /// Connects with Receive Maximum 32000, and keeps its session if `keep`.
    async fn connect(broker: &Broker, id: &str, keep: bool) -> Self {
        let mut options = MqttOptions::new(id, "127.0.0.1", broker.port);
        options.set_keep_alive(Duration::from_secs(30)).set_clean_start(!keep).set_manual_acks(true);
        options.set_connection_timeout(LONG.as_secs());
        let mut properties = ConnectProperties::new();
        properties.receive_maximum = Some(32_000);
        properties.max_packet_size = Some(1_000_000);
        properties.session_expiry_interval = keep.then_some(600);
        options.set_connect_properties(properties);

        let (client, mut events) = AsyncClient::new(options, 1000);
        let Event::Incoming(Packet::ConnAck(connack)) = timeout(LONG, events.poll()).await.unwrap().unwrap()
        else {
            panic!("the first packet is not CONNACK");
        };
        let (arrives, arrived) = channel(1_000_000);
        let (acked, pubacks) = channel(1_000_000);
        let driver = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                match event {
                    Event::Incoming(Packet::Publish(p)) => drop(arrives.send(p).await),
                    Event::Incoming(Packet::PubAck(_) | Packet::PubComp(_)) => drop(acked.send(()).await),
                    _ => {}
                }
            }
        });
        Self { client, connack, arrived, pubacks, driver }
    }

    async fn member(broker: &Broker, id: &str, keep: bool) -> Self {
        let member = Self::connect(broker, id, keep).await;
        member.client.subscribe(SHARED, QoS::AtLeastOnce).await.unwrap();
        sleep(Duration::from_millis(200)).await; // the SUBACK
        member
    }

    /// Publishes numbered messages; returns when the broker has acknowledged all of them.
    async fn publish(&mut self, numbers: std::ops::Range<usize>, qos: QoS) {
        let count = numbers.len();
        for n in numbers {
            self.client.publish(format!("drivers/{}/gps", n % 7), qos, false, n.to_string()).await.unwrap();
        }
        if qos != QoS::AtMostOnce {
            for _ in 0..count {
                timeout(LONG, self.pubacks.recv()).await.unwrap().unwrap();
            }
        }
    }

    /// Everything that arrives until it is quiet.
    async fn take(&mut self) -> Vec<Publish> {
        let mut all = Vec::new();
        while let Ok(Some(publish)) = timeout(QUIET, self.arrived.recv()).await {
            all.push(publish);
        }
        all
    }

    async fn ack(&self, publish: &Publish) {
        self.client.ack(publish).await.unwrap();
    }

    /// Breaks the connection without DISCONNECT.
    async fn break_off(self) {
        self.driver.abort();
        let _ = self.driver.await;
    }

    fn announced(&self) -> Option<u16> {
        self.connack.properties.as_ref().and_then(|p| p.receive_max)
    }
}

fn numbers(publishes: &[Publish]) -> Vec<usize> {
    publishes.iter().map(|p| std::str::from_utf8(&p.payload).unwrap().parse().unwrap()).collect()
}

async fn window_is_32(announce: &str, announced: Option<u16>) {
    let broker = Broker::start(&["--max-inflight", "32", "--announce", announce]).await;
    let mut member = Client::member(&broker, "member", true).await;
    assert_eq!(member.announced(), announced);
    let mut publisher = Client::connect(&broker, "publisher", false).await;
    publisher.publish(0..100, QoS::AtLeastOnce).await;

    let first = member.take().await;
    assert_eq!(numbers(&first), (0..32).collect::<Vec<_>>());
    member.ack(&first[0]).await;
    assert_eq!(numbers(&member.take().await), [32]);
    member.ack(&first[20]).await; // out of turn
    assert_eq!(numbers(&member.take().await), [33]);
}

#[tokio::test]
async fn the_window_is_kept_and_told() {
    window_is_32("true", Some(32)).await;
}

#[tokio::test]
async fn the_window_is_kept_and_not_told() {
    window_is_32("false", None).await;
}

#[tokio::test]
async fn the_clients_own_maximum_is_the_window_when_smaller() {
    let broker = Broker::start(&[]).await;
    assert_eq!(Client::connect(&broker, "member", true).await.announced(), Some(32_000));
}

#[tokio::test]
async fn a_session_comes_back_with_what_it_is_owed() {
    for announce in ["true", "false"] {
        let broker = Broker::start(&["--max-inflight", "32", "--announce", announce]).await;
        let mut publisher = Client::connect(&broker, "publisher", false).await;
        let mut member = Client::member(&broker, "member", true).await;
        assert!(!member.connack.session_present);
        publisher.publish(0..40, QoS::AtLeastOnce).await;
        let first = member.take().await;
        assert_eq!(first.len(), 32);
        member.ack(&first[0]).await;
        assert_eq!(numbers(&member.take().await), [32]);
        member.break_off().await;
        publisher.publish(40..50, QoS::AtLeastOnce).await; // while it is away

        // Without subscribing again: the old subscription holds.
        let mut member = Client::connect(&broker, "member", true).await;
        assert!(member.connack.session_present);
        let again = member.take().await;
        assert_eq!(numbers(&again), (1..33).collect::<Vec<_>>());
        assert!(again.iter().all(|p| p.dup), "sent before");
        let ids = |publishes: &[Publish]| publishes.iter().map(|p| p.pkid).collect::<Vec<_>>();
        assert_eq!(ids(&again[..31]), ids(&first[1..]), "under the same packet identifiers");
        for publish in &again {
            member.ack(publish).await;
        }
        let rest = member.take().await;
        assert_eq!(numbers(&rest), (33..50).collect::<Vec<_>>());
        assert!(rest.iter().all(|p| !p.dup), "never sent before");
    }
}

#[tokio::test]
async fn nothing_is_lost_while_the_member_comes_and_goes() {
    const COUNT: usize = 40_000;
    let broker = Broker::start(&["--max-inflight", "200"]).await;
    let mut publisher = Client::connect(&broker, "publisher", false).await;
    let mut member = Client::member(&broker, "member", true).await;
    let publishing = tokio::spawn(async move {
        for start in (0..COUNT).step_by(100) {
            publisher.publish(start..start + 100, QoS::AtLeastOnce).await;
            sleep(Duration::from_millis(5)).await;
        }
    });

    let mut seen = vec![false; COUNT];
    let mut connections = 1;
    loop {
        // Every second time it takes over its own live connection.
        let end = tokio::time::Instant::now() + Duration::from_millis(150);
        let mut got = 0;
        while let Ok(publish) = tokio::time::timeout_at(end, member.arrived.recv()).await {
            let publish = publish.expect("the connection holds");
            seen[numbers(std::slice::from_ref(&publish))[0]] = true;
            member.ack(&publish).await;
            got += 1;
        }
        if publishing.is_finished() && got == 0 {
            break;
        }
        if connections % 2 == 0 {
            member.break_off().await;
            member = Client::connect(&broker, "member", true).await;
        } else {
            let next = Client::connect(&broker, "member", true).await;
            member.break_off().await;
            member = next;
        }
        assert!(member.connack.session_present);
        connections += 1;
    }
    publishing.await.unwrap();
    let lost: Vec<_> = (0..COUNT).filter(|n| !seen[*n]).collect();
    assert!(lost.is_empty(), "{} lost in {connections} connections: {lost:?}", lost.len());
}

/// As a frozen process, or a network that swallows everything.
#[tokio::test]
async fn nothing_is_lost_when_a_member_stops_reading_and_comes_back() {
    const COUNT: usize = 600;
    let broker = Broker::start(&[]).await;
    let mut publisher = Client::connect(&broker, "publisher", false).await;
    Client::member(&broker, "member", true).await.break_off().await;
    let mut frozen = tokio::net::TcpStream::connect(("127.0.0.1", broker.port)).await.unwrap();
    // CONNECT: MQTT 5, the old session, keep alive 60 s, Session Expiry Interval 600 s, "member".
    let connect = b"\x10\x18\0\x04MQTT\x05\0\0\x3c\x05\x11\0\0\x02\x58\0\x06member";
    frozen.write_all(connect).await.unwrap();
    sleep(Duration::from_millis(200)).await;

    for n in 0..COUNT {
        let payload = format!("{n:0>65000}"); // 39 MB in all: more than the sockets hold
        publisher.client.publish("drivers/1/gps", QoS::AtLeastOnce, false, payload).await.unwrap();
    }
    for _ in 0..COUNT {
        timeout(LONG, publisher.pubacks.recv()).await.unwrap().unwrap();
    }
    let mut member = Client::connect(&broker, "member", true).await;
    assert!(member.connack.session_present);
    assert_eq!(numbers(&member.take().await), (0..COUNT).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_full_queue_drops_its_oldest() {
    let broker = Broker::start(&["--max-inflight", "10", "--max-queue", "20"]).await;
    let mut publisher = Client::connect(&broker, "publisher", false).await;
    let mut member = Client::member(&broker, "member", true).await;
    publisher.publish(0..10, QoS::AtLeastOnce).await;
    let first = member.take().await; // they fill the window
    publisher.publish(10..100, QoS::AtLeastOnce).await;
    assert_eq!(numbers(&member.take().await), []);
    for publish in &first {
        member.ack(publish).await;
    }
    let second = member.take().await;
    assert_eq!(numbers(&second), (80..90).collect::<Vec<_>>());
}

#[tokio::test]
async fn two_members_share_evenly_also_when_one_is_away() {
    let broker = Broker::start(&[]).await;
    let mut publisher = Client::connect(&broker, "publisher", false).await;
    let mut a = Client::member(&broker, "a", true).await;
    let mut b = Client::member(&broker, "b", true).await;
    publisher.publish(0..1000, QoS::AtLeastOnce).await;
    assert_eq!((a.take().await.len(), b.take().await.len()), (500, 500));

    b.break_off().await;
    publisher.publish(1000..1100, QoS::AtLeastOnce).await;
    assert_eq!(a.take().await.len(), 50);
    let mut b = Client::connect(&broker, "b", true).await;
    assert_eq!(b.take().await.len(), 550);
}

#[tokio::test]
async fn all_levels_of_service_and_retained_messages_pass() {
    let broker = Broker::start(&[]).await;
    let mut publisher = Client::connect(&broker, "publisher", false).await;
    let mut member = Client::member(&broker, "member", false).await;
    publisher.publish(0..10, QoS::AtMostOnce).await;
    publisher.publish(10..20, QoS::ExactlyOnce).await; // to a QoS 1 subscription
    let all = member.take().await;
    assert_eq!(numbers(&all), (0..20).collect::<Vec<_>>());
    assert!(all[..10].iter().all(|p| p.qos == QoS::AtMostOnce));
    assert!(all[10..].iter().all(|p| p.qos == QoS::AtLeastOnce));

    publisher.client.publish("status", QoS::AtLeastOnce, true, "1").await.unwrap();
    sleep(Duration::from_millis(200)).await;
    member.client.subscribe("status", QoS::AtLeastOnce).await.unwrap();
    let kept = member.take().await;
    assert_eq!(numbers(&kept), [1]);
    assert!(kept[0].retain);
}

/// rmqtt's default sends an unacknowledged message again after 20 s, on the same connection.
#[tokio::test]
async fn an_unacknowledged_message_is_not_sent_again_on_its_connection() {
    let broker = Broker::start(&[]).await;
    let mut publisher = Client::connect(&broker, "publisher", false).await;
    let mut member = Client::member(&broker, "member", true).await;
    publisher.publish(0..5, QoS::AtLeastOnce).await;
    assert_eq!(member.take().await.len(), 5);
    sleep(Duration::from_secs(25)).await;
    assert_eq!(member.take().await.len(), 0);
}

/// cargo test --release -- --ignored --nocapture
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn rate() {
    const COUNT: usize = 300_000;
    let broker = Broker::start(&[]).await;
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", broker.process.id())).unwrap();
        let kept = |l: &&str| l.starts_with("VmRSS") || l.starts_with("VmHWM");
        status.lines().filter(kept).map(|l| l.replace('\t', " ")).collect::<Vec<_>>().join(", ")
    };
    println!("idle: {}", memory());
    let mut member = Client::member(&broker, "member", true).await;
    let mut publisher = Client::connect(&broker, "publisher", false).await;
    let start = std::time::Instant::now();
    let publishing = tokio::spawn(async move {
        publisher.publish(0..COUNT, QoS::AtLeastOnce).await;
        start.elapsed()
    });
    for _ in 0..COUNT {
        let publish = member.arrived.recv().await.unwrap();
        member.ack(&publish).await;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{COUNT} delivered and acknowledged in {seconds:.2} s: {:.0}/s", COUNT as f64 / seconds);
    println!("published in {:.2?}; {}", publishing.await.unwrap(), memory());

    member.break_off().await;
    let mut publisher = Client::connect(&broker, "publisher", false).await;
    publisher.publish(0..COUNT, QoS::AtLeastOnce).await;
    println!("with {COUNT} queued: {}", memory());
}
