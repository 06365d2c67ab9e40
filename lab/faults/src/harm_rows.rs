//! Attacks on a public topic (malformed messages of every kind, and floods of malformed messages),
//! and a clock that jumps.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_stack::unix_ms;
use lab_stack::wait_until;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::PublishProperties;
use rumqttc::v5::{Client, Event, Incoming, MqttOptions};

use crate::row::{Row, SETTLE, row};
use crate::scene::Scene;

const TOPIC: &str = "drivers/harm/gps";

pub(crate) fn all() -> Vec<Row> {
    vec![
        row("reject-flood", "60,000 refused messages beside the fleet", (3_000, 20), reject_flood),
        row(
            "poison",
            "every kind of harmful message, twenty times, between good ones",
            (3_000, 12),
            poison,
        )
        .quick()
        // Smaller than the packet limit of the broker.
        .with("LAB__PAYLOAD_BYTES_MAX", "1000000"),
        row(
            "clock-back",
            "milepost's clock an hour back, then right again",
            (3_000, 20),
            clock_back,
        )
        .clock()
        .with("DECODE__FIX_FUTURE_MAX", "2h"),
    ]
}

/// A message to publish.
pub(crate) struct Message {
    topic: String,
    payload: Vec<u8>,
    /// Reason with which milepost must reject the message; `None` for a valid message.
    reason: Option<&'static str>,
    qos: QoS,
    retain: bool,
    /// Number of user properties.
    properties: usize,
}

/// Returns a message of QoS 1 to [`TOPIC`].
fn message(payload: impl Into<Vec<u8>>, reason: impl Into<Option<&'static str>>) -> Message {
    let (payload, reason) = (payload.into(), reason.into());
    Message {
        topic: TOPIC.to_owned(),
        payload,
        reason,
        qos: QoS::AtLeastOnce,
        retain: false,
        properties: 0,
    }
}

/// Returns a valid message. `ts`: milliseconds since the epoch.
pub(crate) fn fix(driver: &str, lat: f64, lng: f64, ts: i64) -> Message {
    let payload = format!(r#"{{"lat":{lat},"lng":{lng},"ts":{ts}}}"#);
    Message { topic: format!("drivers/{driver}/gps"), ..message(payload, None) }
}

/// Publishes the messages, and returns when the broker has acknowledged all messages.
pub(crate) fn publish(port: u16, messages: &[Message]) -> Result<()> {
    let mut options = MqttOptions::new(format!("harm-{}", fastrand::u32(..)), "127.0.0.1", port);
    options.set_max_packet_size(Some(4 << 20)).set_connection_timeout(20);
    let (client, mut connection) = Client::new(options, 1_000);
    let total = messages.len();
    std::thread::scope(|scope| {
        scope.spawn(move || -> Result<()> {
            for message in messages {
                let property = |n: usize| (format!("key {n}"), "value".to_owned());
                let user_properties = (0..message.properties).map(property).collect();
                let properties =
                    PublishProperties { user_properties, ..PublishProperties::default() };
                client.publish_with_properties(
                    &message.topic,
                    message.qos,
                    message.retain,
                    message.payload.clone(),
                    properties,
                )?;
            }
            Ok(())
        });
        let mut acked = 0;
        for event in connection.iter() {
            if let Event::Incoming(Incoming::PubAck(_) | Incoming::PubComp(_)) = event? {
                acked += 1;
            }
            if acked == total {
                return Ok(());
            }
        }
        anyhow::bail!("the broker acknowledged {acked} of {total} messages")
    })
}

/// Returns the number of stored rejects by reason. A row of the table may represent several
/// rejects.
fn stored_rejects(scene: &Scene) -> Result<BTreeMap<String, u64>> {
    let text =
        scene.engine()?.query("SELECT reason, sum(count) FROM fleet.rejects GROUP BY reason")?;
    let count = |line: &str| -> Result<(String, u64)> {
        let (reason, count) = line.split_once('\t').context("a row lacks its second column")?;
        Ok((reason.to_owned(), count.parse()?))
    };
    text.lines().map(count).collect()
}

/// Checks that the table counts every reject exactly, and that the connection was not interrupted.
fn expect_rejects(scene: &Scene, expected: &BTreeMap<String, u64>) -> Result<()> {
    let mut stored = BTreeMap::new();
    wait_until("every reject is counted", SETTLE, || {
        stored = stored_rejects(scene)?;
        Ok(stored == *expected)
    })
    .with_context(|| format!("stored {stored:?}, expected {expected:?}"))?;
    let reconnects = scene.members[0].milepost.metric("mqtt_reconnects_total")?;
    ensure!(reconnects == 0.0, "{reconnects} reconnects");
    Ok(())
}

/// Publishes more malformed messages than milepost stores one by one.
fn reject_flood(scene: &mut Scene) -> Result<()> {
    const MESSAGES: u64 = 60_000;
    scene.wait_for_unacked(0)?;
    let flood: Vec<Message> =
        (0..MESSAGES).map(|n| message(format!("nonsense {n}"), "invalid_json")).collect();
    publish(scene.broker_port()?, &flood)?;
    expect_rejects(scene, &BTreeMap::from([("invalid_json".to_owned(), MESSAGES)]))?;
    let rows: u64 = scene.engine()?.query("SELECT count() FROM fleet.rejects")?.trim().parse()?;
    eprintln!("    {MESSAGES} rejects in {rows} rows");
    ensure!(rows < MESSAGES / 2, "{MESSAGES} rejects became {rows} rows, more than half as many");
    Ok(())
}

/// Returns the set of malformed messages, with some valid fixes among them.
fn poison_set() -> Vec<Message> {
    let now = unix_ms();
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let points = |count: usize| {
        let mut array = String::from("[");
        for n in 0..count {
            let _ = write!(
                array,
                "{}{{\"lat\":1,\"lng\":2,\"ts\":{now},\"seq\":{n}}}",
                if n > 0 { "," } else { "" }
            );
        }
        array + "]"
    };
    let good = format!(r#"{{"lat":1,"lng":2,"ts":{now},"seq":1}}"#);
    vec![
        message(nested(100_000), "wrong_shape"),
        // An unknown field is ignored, however deeply nested.
        message(format!(r#"{{"lat":1,"lng":2,"ts":{now},"x":{}}}"#, nested(100_000)), None),
        message(&b"{\"lat\":1,\"lng\":2,\"x\":\"\xff\xfe\"}"[..], "invalid_utf8"),
        message(r#"{"lat":NaN,"lng":2}"#, "missing_field"),
        message(r#"{"lat":1e999,"lng":2}"#, "lat_range"),
        message(r#"{"lat":1,"lng":2,"ts":1e999}"#, "too_new"),
        // The last of duplicate keys wins.
        message(format!(r#"{{"lat":99,"lat":1,"lng":2,"ts":{now},"ts":{now}}}"#), None),
        message(r#"{"lat":1,"lng":2,"ts":"1970-01-01T00:00:00Z"}"#, "too_old"),
        message(r#"{"lat":1,"lng":2,"ts":"2100-01-01T00:00:00Z"}"#, "too_new"),
        message(r#"{"lat":1,"lng":2,"ts":-9223372036854775808}"#, "too_old"),
        message(r#"{"lat":1,"lng":2,"ts":18446744073709551615}"#, "too_new"),
        message("", "empty"),
        message("null", "wrong_shape"),
        message(points(10_000), None),
        message(points(10_001), "too_many_points"),
        message(vec![b' '; 1_000_001], "too_large"),
        message(vec![0; 10_000], "empty"),
        Message {
            topic: format!("drivers/{}/gps", "x".repeat(65_000)),
            ..message(good.clone(), "bad_topic")
        },
        Message { topic: "drivers/a b/gps".to_owned(), ..message(good.clone(), "bad_topic") },
        Message { qos: QoS::ExactlyOnce, ..message(good.clone(), None) },
        Message { retain: true, ..message(good.clone(), None) },
        Message { properties: 1_000, ..message(good.clone(), None) },
        message(good, None),
    ]
}

/// Publishes the malformed messages repeatedly. Each must be rejected with its reason, and the
/// valid fixes among them must be stored.
fn poison(scene: &mut Scene) -> Result<()> {
    const REPEATS: u64 = 20;
    scene.wait_for_unacked(0)?;
    let set = poison_set();
    for _ in 0..REPEATS {
        publish(scene.broker_port()?, &set)?;
        sleep(Duration::from_millis(200));
    }
    let mut expected = BTreeMap::new();
    for reason in set.iter().filter_map(|message| message.reason) {
        *expected.entry(reason.to_owned()).or_insert(0) += REPEATS;
    }
    expect_rejects(scene, &expected)?;
    let sql = "SELECT count() FROM fleet.fixes WHERE driver_id = 'harm'";
    let good: u64 = scene.engine()?.query(sql)?.trim().parse()?;
    ensure!(good == 10_000, "{good} of 10,000 different valid points are stored");
    Ok(())
}

/// Sets the clock an hour back for a few seconds. `received_at` then shows the shifted time.
fn clock_back(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.set_clock(-3_600)?;
    let shifted =
        "SELECT count() FROM fleet.positions WHERE received_at < now64(3) - INTERVAL 50 MINUTE";
    wait_until("milepost stores the shifted time", SETTLE, || {
        Ok(scene.engine()?.query(shifted)?.trim().parse::<u64>()? > 0)
    })?;
    sleep(Duration::from_secs(4));
    scene.set_clock(0)?;
    Ok(())
}
