//! One message through the core, in memory only: a PUBLISH, its batch, an insert that fails, the
//! retry, the PUBACK.
//!
//! `cargo run -p milepost-core --example one_message` prints each step with the source file that
//! decided it. The function `play` acts as the broker and ClickHouse: it passes events to the
//! consumer and prints the results.
#![expect(clippy::disallowed_methods, reason = "the example is the shell, which reads the clock")]

use std::io::{self, Write};
use std::time::{Duration, Instant};

use milepost_core::Qos;
use milepost_core::batch;
use milepost_core::consumer::{self, Connections, Consumer, Now};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::events::{DeliveryCommand, Outcome, Report, ServerStatus};
use milepost_core::delivery::policy::{self, Delivery};
use milepost_core::delivery::sink::FailureKind;
use milepost_core::intake::{self, Intake};
use milepost_core::session::ConnAck;
use milepost_core::session::events::{self, SessionEvent};
use milepost_decode::position::Timestamp;
use milepost_decode::{Decoder, Limits, Message, Source};

/// 2026-01-01: the wall clock when the example begins.
const WALL_MS: i64 = 1_767_225_600_000;

#[cfg_attr(test, expect(dead_code, reason = "the test plays the example itself"))]
fn main() -> io::Result<()> {
    play(&mut io::stdout().lock())
}

/// Plays the example and writes a line for each step.
pub(crate) fn play(out: &mut impl Write) -> io::Result<()> {
    let began = Instant::now();
    let at = |ms: u64| Now {
        instant: began + Duration::from_millis(ms),
        wall: Timestamp::from_unix_ms(WALL_MS + i64::try_from(ms).unwrap_or(i64::MAX)),
    };
    let ms_of = |instant: Instant| instant.duration_since(began).as_millis();
    let mut consumer = consumer();
    let mut print_step = |ms: u128, step: &str, decided_by: &str| {
        writeln!(out, "{ms:>5} ms  {step:<78} {decided_by}")
    };

    // A new session is in the state `Connecting`, so the shell connects. The broker accepts.
    consumer.handle_timeout(at(0).instant);
    let (node, _) = consumer.dial(0, at(0).instant);
    print_step(0, &format!("session 0 connects to {node}"), "consumer/nodes.rs")?;
    let connack =
        ConnAck { session_present: false, receive_maximum: Some(1_000), ..ConnAck::default() };
    consumer.handle_event(0, SessionEvent::Connected(connack), at(10).instant);
    let subscribe = consumer.session_mut(0).poll_command().expect("a new session subscribes");
    print_step(10, &format!("CONNACK, no session present → {subscribe:?}"), "session/mod.rs")?;
    consumer.handle_event(0, SessionEvent::Subscribed { refusals: Vec::new() }, at(20).instant);
    consumer.handle_server_status(ServerStatus::ready(), at(20).instant);
    consumer.handle_timeout(at(20).instant);
    print_step(20, "SUBACK, and ClickHouse has its tables: the session is live", "session/mod.rs")?;

    // A device publishes at QoS 1. The row enters the open batch; nothing is acknowledged yet.
    let payload = br#"{"lat":25.7617,"lng":-80.1918,"speed":12.4,"ts":1767225600000}"#;
    let message = Message { packet_id: Some(7), ..Message::new(b"drivers/d7/gps", payload) };
    consumer.read_clock(at(200));
    consumer.handle_publish(0, message, at(200));
    consumer.handle_timeout(at(200).instant);
    let unacked = consumer.session(0).unacked();
    print_step(
        200,
        &format!("PUBLISH, packet id 7 → a row in the open batch; {unacked} unacknowledged"),
        "intake/mod.rs",
    )?;
    let due = consumer.poll_timeout(at(200).instant).expect("the open batch has a deadline");
    print_step(
        200,
        &format!(
            "nothing to do before {} ms: batch.age_max after the batch's first row",
            ms_of(due)
        ),
        "batch.rs",
    )?;

    // The batch closes by its age; delivery accepts it and attempts to insert it.
    consumer.handle_timeout(due);
    let (batch, token) = next_attempt(&mut consumer);
    print_step(
        ms_of(due),
        &format!("the batch closes; insert it with token {token}"),
        "delivery/policy",
    )?;

    // ClickHouse refuses the insert for now. The rows are certainly not committed, so the retry
    // keeps the token.
    let failed = due + Duration::from_millis(50);
    let outcome = Outcome::Failed { kind: FailureKind::Transient, why: "Code: 241".to_owned() };
    consumer.handle_report(Report { batch, outcome }, failed);
    consumer.handle_timeout(failed);
    let notices = std::iter::from_fn(|| consumer.poll_notice()).map(|notice| notice.to_string());
    let logged =
        notices.filter(|notice| notice.contains("insert failed")).last().unwrap_or_default();
    print_step(ms_of(failed), &logged, "delivery/policy/outcomes.rs")?;
    let acknowledged = consumer.session(0).ack_due();
    assert_eq!(acknowledged, None);
    print_step(
        ms_of(failed),
        "no PUBACK is due: the message's row is not durable",
        "session/acks.rs",
    )?;
    let retry = consumer.poll_timeout(failed).expect("the retry has a deadline");
    consumer.handle_timeout(retry);
    let (batch, token) = next_attempt(&mut consumer);
    print_step(ms_of(retry), &format!("insert it again with token {token}"), "delivery/retry.rs")?;

    // ClickHouse confirms the commit: the batch is durable, its message is complete, and the PUBACK
    // may be sent.
    let committed = retry + Duration::from_millis(30);
    let took = Duration::from_millis(30);
    consumer
        .handle_report(Report { batch, outcome: Outcome::Inserted { took, erased: 0 } }, committed);
    consumer.handle_timeout(committed);
    print_step(
        ms_of(committed),
        "ClickHouse confirms the commit: the batch is durable",
        "delivery/policy",
    )?;
    let packet_id = consumer.session(0).ack_due().expect("the message is complete");
    consumer.session_mut(0).ack_sent();
    print_step(ms_of(committed), &format!("PUBACK, packet id {packet_id}"), "session/acks.rs")?;
    let totals = consumer.totals();
    print_step(
        ms_of(committed),
        &format!(
            "{} position inserted; the counters add up: {}",
            totals.delivery.inserted,
            totals.adds_up()
        ),
        "consumer/totals.rs",
    )
}

/// Polls commands until the next attempt to insert. Returns the batch and the token.
fn next_attempt(consumer: &mut Consumer) -> (u64, String) {
    while let Some(command) = consumer.poll_command() {
        if let DeliveryCommand::Attempt { batch, attempt, .. } = command {
            return (batch, attempt.token);
        }
    }
    panic!("delivery did not attempt to insert the batch");
}

/// Returns a consumer with one session, batches of 5,000 rows or one second, and no spool.
fn consumer() -> Consumer {
    let limits =
        batch::Limits { rows_max: 5_000, age_max: Duration::from_secs(1), bytes_max: 8 << 20 };
    let decoder = Decoder::new(&[Source::milepost("drivers/+/gps")], Limits::default());
    let intake =
        Intake::new(intake::IntakeConfig { batch: limits, buffer_bytes_max: 64 << 20 }, decoder);
    let delivery = policy::DeliveryConfig {
        inserts_in_flight: 3,
        has_spool: false,
        may_drop_rows: true,
        insert_timeout: Duration::from_secs(60),
        store_when_leaving_after: Duration::from_secs(12),
        incarnation: 1,
        seed: 1,
    };
    let settings = consumer::ConsumerConfig {
        nodes: vec!["broker:1883".into()],
        connections: Connections::Fixed(1),
        session: events::SessionConfig {
            receive_maximum: 1_000,
            answer_timeout: Duration::from_secs(30),
            session_expiry: Duration::from_secs(120),
            seed: 1,
        },
        window_wanted: 0,
        qos: Qos::AtLeastOnce,
        buffer_bytes_max: 64 << 20,
        members_age_max: Duration::ZERO,
        clock_jump_max: Duration::from_secs(300),
    };
    Consumer::new(settings, intake, Delivery::new(delivery, SpoolInventory::default()))
}
