//! Rows, payloads and settings for tests.

use std::time::{Duration, Instant};

use milepost::batch;
use milepost::decode::{self, Decoded, Decoder, Message, Reason, Reject};
use milepost::lane::{self, Now};
use milepost::position::{Position, Qos, Timestamp};

/// A wall clock to begin with: 2026-01-01.
pub const WALL_MS: i64 = 1_767_225_600_000;

/// A message as a broker of a model knows it.
#[derive(Debug, Clone)]
pub struct Sent {
    pub seqs: Vec<u32>,
    pub payload: String,
    pub qos1: bool,
}

/// Made by the decoder, so that a new field does not have to be named here.
pub fn position(driver: &str, seq: u32, qos: Qos) -> Position {
    let (topic, payload) = (format!("drivers/{driver}/gps"), payload(&[seq]));
    let message = Message {
        topic: topic.as_bytes(),
        payload: payload.as_bytes(),
        payload_bytes: payload.len(),
        qos,
        received_at: Timestamp::from_unix_ms(WALL_MS),
    };
    let mut decoded = Decoded::default();
    decoder().decode(message, &mut decoded);
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
        qos: Qos::AtLeastOnce,
    }
}

/// A payload of points with these numbers; an object for one, an array for more.
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

pub fn decoder() -> Decoder {
    Decoder::new(&["drivers/+/gps".to_owned()], limits())
}

pub fn lane_settings(rows_max: usize) -> lane::Settings {
    lane::Settings {
        batch: batch::Limits { rows_max, age_max: Duration::from_secs(1), bytes_max: 1 << 20 },
        inserts_in_flight: 2,
        buffer_bytes_max: 1 << 20,
        receive_maximum: 1_000,
        spool: false,
        spool_when_leaving_after: Duration::from_secs(12),
        leave: false,
        seed: 1,
    }
}

/// `after` the beginning of the test.
pub fn now(began: Instant, after: Duration) -> Now {
    let after_ms = i64::try_from(after.as_millis()).unwrap();
    Now { instant: began + after, wall: Timestamp::from_unix_ms(WALL_MS + after_ms) }
}
