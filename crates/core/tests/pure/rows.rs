//! Rows, payloads and settings for tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::Qos;
use milepost_core::batch;
use milepost_core::consumer::nodes::Node;
use milepost_core::consumer::{self, Connections, Now};
use milepost_core::delivery::policy;
use milepost_core::intake;
use milepost_core::session::ConnAck;
use milepost_core::session::events::{self, SessionEvent};
use milepost_decode as decode;
use milepost_decode::Message;
use milepost_decode::formats::{Format, shipped};
use milepost_decode::position::{Position, Timestamp};
use milepost_decode::reject::{Reason, Reject};
use milepost_decode::{Decoded, Decoder, Driver, Keep, Source, Template};

/// Wall clock at the start of a test: 2026-01-01.
pub const WALL_MS: i64 = 1_767_225_600_000;

/// A message in the model of the broker.
#[derive(Debug, Clone)]
pub struct Sent {
    pub topic: &'static str,
    /// The numbers of the message's points.
    pub seqs: Vec<u32>,
    pub payload: String,
    /// QoS 1; otherwise QoS 0.
    pub qos1: bool,
}

/// Returns a position made by the decoder, so that this file does not have to list its fields.
pub fn position(driver: &str, seq: u32) -> Position {
    let (topic, payload) = (format!("drivers/{driver}/gps"), payload(&[seq]));
    let message = Message::new(topic.as_bytes(), payload.as_bytes());
    let mut decoded = Decoded::default();
    decoder().decode(message, Timestamp::from_unix_ms(WALL_MS), &mut decoded);
    decoded.positions.remove(0)
}

pub fn reject(reason: Reason, payload_bytes: usize) -> Reject {
    Reject {
        received_at: Timestamp::from_unix_ms(WALL_MS),
        topic: "drivers/d/gps".to_owned(),
        driver_id: "d".to_owned(),
        reason,
        detail: String::new(),
        payload: vec![b'x'; payload_bytes],
        payload_bytes: payload_bytes as u64,
        count: 1,
    }
}

/// Returns a payload of points with these numbers: an object for one point, an array for more.
pub fn payload(seqs: &[u32]) -> String {
    let point = |seq: &u32| format!(r#"{{"lat":25.5,"lng":-80.25,"ts":{WALL_MS},"seq":{seq}}}"#);
    match seqs {
        [seq] => point(seq),
        seqs => format!("[{}]", seqs.iter().map(point).collect::<Vec<_>>().join(",")),
    }
}

pub fn limits() -> decode::Limits {
    decode::Limits {
        payload_bytes_max: 1_000_000,
        points_max: 10_000,
        fix_age_max: Duration::from_secs(30 * 86_400),
        fix_future_max: Duration::from_secs(300),
    }
}

/// Returns a source in milepost's own format on `drivers/+/gps`, and a source in the OwnTracks
/// format on `owntracks/+`.
pub fn sources() -> [Source; 2] {
    let owntracks = Format::Mapped(Arc::new(shipped("owntracks", None).unwrap()));
    let driver = Driver::Topic(Template::first());
    [
        Source::milepost("drivers/+/gps"),
        Source::new("owntracks/+", driver, owntracks, Keep::Nothing),
    ]
}

pub fn decoder() -> Decoder {
    Decoder::new(&sources(), limits())
}

pub fn batch_limits(rows_max: usize) -> batch::Limits {
    batch::Limits { rows_max, age_max: Duration::from_secs(1), bytes_max: 1 << 20 }
}

pub fn intake_settings(rows_max: usize) -> intake::IntakeConfig {
    intake::IntakeConfig { batch: batch_limits(rows_max), buffer_bytes_max: 1 << 20 }
}

pub fn session_settings() -> events::SessionConfig {
    events::SessionConfig {
        receive_maximum: 1_000,
        answer_timeout: Duration::from_secs(30),
        session_expiry: Duration::from_secs(120),
        seed: 1,
    }
}

pub fn nodes(number: usize) -> Vec<Node> {
    (0..number).map(|node| format!("n{node}:1883").into()).collect()
}

pub fn consumer_settings(sessions: usize) -> consumer::ConsumerConfig {
    consumer::ConsumerConfig {
        nodes: nodes(1),
        connections: Connections::Fixed(sessions),
        session: session_settings(),
        window_wanted: 0,
        qos: Qos::AtLeastOnce,
        buffer_bytes_max: 1 << 20,
        members_age_max: Duration::ZERO,
        clock_jump_max: Duration::from_secs(300),
    }
}

pub fn policy_settings() -> policy::DeliveryConfig {
    policy::DeliveryConfig {
        inserts_in_flight: 2,
        has_spool: false,
        may_drop_rows: true,
        insert_timeout: Duration::from_secs(60),
        store_when_leaving_after: Duration::from_secs(12),
        incarnation: 1,
        seed: 1,
    }
}

/// Returns both clocks at this time after the start of the test.
pub fn now(began: Instant, elapsed: Duration) -> Now {
    let elapsed_ms = i64::try_from(elapsed.as_millis()).unwrap();
    Now { instant: began + elapsed, wall: Timestamp::from_unix_ms(WALL_MS + elapsed_ms) }
}

/// Returns a CONNACK that resumes the session.
pub fn resumed(receive_maximum: Option<u16>) -> SessionEvent {
    connected(true, receive_maximum)
}

/// Returns a CONNACK without Session Present: the broker has created a session.
pub fn new_session(receive_maximum: Option<u16>) -> SessionEvent {
    connected(false, receive_maximum)
}

/// Returns a CONNACK with this Session Present flag and Receive Maximum.
pub fn connected(session_present: bool, receive_maximum: Option<u16>) -> SessionEvent {
    SessionEvent::Connected(ConnAck { session_present, receive_maximum, ..ConnAck::default() })
}
