//! MQTT to ClickHouse as a team writes it in an afternoon: with well-known crates, each used as its
//! documentation shows.
//!
//! This program is not a part of milepost. `make story` measures the cost of this program, and its
//! losses at a kill, an outage and a malformed payload. The program is meant to be good code for
//! its size; no flaw is planted in it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use clickhouse::{Client, Row, inserter::Inserter};
use prometheus::{
    Histogram, IntCounter, TextEncoder, exponential_buckets, register_histogram,
    register_int_counter,
};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, Publish};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

const TOPIC: &str = "$share/milepost/drivers/+/gps";
const BATCH_AGE: Duration = Duration::from_secs(1);
type Counter = LazyLock<IntCounter>;
static RECEIVED: Counter = LazyLock::new(|| counter("messages_received", "Messages received."));
static INSERTED: Counter = LazyLock::new(|| counter("positions_inserted", "Rows inserted."));
static REJECTED: Counter = LazyLock::new(|| counter("messages_rejected", "Bad messages."));
static LOST: Counter = LazyLock::new(|| counter("positions_lost", "Rows of failed inserts."));
static INSERT_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    let buckets = exponential_buckets(0.000_25, 2.0, 16).expect("a valid range");
    register_histogram!("afternoon_insert_duration_seconds", "Duration of one INSERT.", buckets)
        .expect("registered once")
});
static SUBSCRIBED: AtomicBool = AtomicBool::new(false);

fn counter(name: &str, help: &str) -> IntCounter {
    register_int_counter!(format!("afternoon_{name}_total"), help.to_owned())
        .expect("registered once")
}

#[derive(Deserialize)]
struct Fix {
    lat: f64,
    lng: f64,
    speed: Option<f64>,
    heading: Option<f64>,
    alt: Option<f64>,
    acc: Option<f64>,
    ts: i64,
    seq: u32,
}

/// A row of `fleet.positions`; the largest value of a type means unknown.
#[derive(Row, Serialize)]
struct Position<'a> {
    driver_id: &'a str,
    ts: i64,
    seq: u32,
    lat_e7: i32,
    lng_e7: i32,
    speed_cms: u16,
    heading_cdeg: u16,
    alt_dm: i32,
    acc_dm: u16,
    received_at: i64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let variable =
        |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let listener = TcpListener::bind(variable("HTTP_LISTEN", "127.0.0.1:9464")).await?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    let port = variable("MQTT_PORT", "1883").parse()?;
    let mut options = MqttOptions::new("afternoon", variable("MQTT_HOST", "127.0.0.1"), port);
    options.set_keep_alive(Duration::from_secs(10)).set_clean_start(false);
    options.set_session_expiry_interval(Some(60));
    let (client, events) = AsyncClient::new(options, 100);
    let qos = if variable("MQTT_QOS", "1") == "0" { QoS::AtMostOnce } else { QoS::AtLeastOnce };
    let (sender, messages) = channel(10_000);
    tokio::spawn(receive(client, events, qos, sender));

    // Validation is off, because validation would fetch the table's schema, and require every
    // column without a DEFAULT.
    let clickhouse = Client::default()
        .with_url(variable("CLICKHOUSE_URL", "http://127.0.0.1:8123"))
        .with_database("fleet")
        .with_setting("async_insert", "0")
        .with_validation(false);
    let inserter = clickhouse
        .inserter::<Position<'_>>("positions")
        .with_max_rows(5_000)
        .with_period(Some(BATCH_AGE))
        .with_timeouts(Some(Duration::from_secs(5)), Some(Duration::from_secs(30)));
    insert(inserter, messages).await
}

/// Polls the connection. The client acknowledges each message as it arrives, and connects again
/// after an error.
async fn receive(client: AsyncClient, mut events: EventLoop, qos: QoS, messages: Sender<Publish>) {
    loop {
        match events.poll().await {
            Ok(Event::Incoming(Packet::ConnAck(_))) => {
                let _ = client.try_subscribe(TOPIC, qos).inspect_err(|error| eprintln!("{error}"));
            }
            Ok(Event::Incoming(Packet::SubAck(_))) => SUBSCRIBED.store(true, Ordering::Relaxed),
            Ok(Event::Incoming(Packet::Publish(publish))) => {
                if messages.send(publish).await.is_err() {
                    return;
                }
            }
            Ok(_) => {}
            Err(error) => {
                SUBSCRIBED.store(false, Ordering::Relaxed);
                eprintln!("mqtt: {error}; reconnecting");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Writes each message as a row, and commits when the inserter's limits are reached.
async fn insert(
    mut inserter: Inserter<Position<'static>>,
    mut messages: Receiver<Publish>,
) -> Result<()> {
    let mut tick = tokio::time::interval(BATCH_AGE / 10);
    let mut terminated = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            Some(message) = messages.recv() => {
                RECEIVED.inc();
                match decode(&message) {
                    Ok((driver_id, fix)) => inserter.write(&position(driver_id, &fix)).await?,
                    Err(error) => {
                        REJECTED.inc();
                        eprintln!("rejected: {error:#}");
                    }
                }
            }
            _ = tick.tick() => {}
            _ = terminated.recv() => {
                inserter.end().await?;
                return Ok(());
            }
        }
        let (began, pending) = (Instant::now(), inserter.pending().rows);
        match inserter.commit().await {
            Ok(done) if done.rows > 0 => {
                INSERT_SECONDS.observe(began.elapsed().as_secs_f64());
                INSERTED.inc_by(done.rows);
            }
            Ok(_) => {}
            Err(error) => {
                LOST.inc_by(pending);
                eprintln!("insert of {pending} rows failed: {error}");
            }
        }
    }
}

fn decode(message: &Publish) -> Result<(&str, Fix)> {
    let topic = std::str::from_utf8(&message.topic)?;
    let driver_id = topic.split('/').nth(1).context("no driver in the topic")?;
    let fix: Fix = serde_json::from_slice(&message.payload)?;
    ensure!(
        fix.lat.abs() <= 90.0 && fix.lng.abs() <= 180.0,
        "{}, {} is not a position",
        fix.lat,
        fix.lng
    );
    Ok((driver_id, fix))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts from f64 saturate"
)]
fn position<'a>(driver_id: &'a str, fix: &Fix) -> Position<'a> {
    let scaled = |value: Option<f64>, factor: f64| {
        value.map_or(u16::MAX, |value| (value * factor).round() as u16)
    };
    let now = UNIX_EPOCH.elapsed().unwrap_or_default();
    Position {
        driver_id,
        ts: fix.ts,
        seq: fix.seq,
        lat_e7: (fix.lat * 1e7).round() as i32,
        lng_e7: (fix.lng * 1e7).round() as i32,
        speed_cms: scaled(fix.speed, 100.0),
        heading_cdeg: scaled(fix.heading, 100.0),
        alt_dm: fix.alt.map_or(i32::MAX, |alt| (alt * 10.0).round() as i32),
        acc_dm: scaled(fix.acc, 10.0),
        received_at: now.as_millis() as i64,
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    let mut request = [0; 4096];
    let len = stream.read(&mut request).await?;
    let (status, body) = if request[..len].starts_with(b"GET /metrics ") {
        ("200 OK", TextEncoder::new().encode_to_string(&prometheus::gather())?)
    } else if SUBSCRIBED.load(Ordering::Relaxed) {
        ("200 OK", "ready\n".to_owned())
    } else {
        ("503 Service Unavailable", "not subscribed\n".to_owned())
    };
    let head =
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    Ok(stream.write_all((head + &body).as_bytes()).await?)
}
