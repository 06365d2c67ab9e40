//! What both benchmarks work on: messages as a fleet sends them, through a lane that is connected.

use std::time::{Duration, Instant};

use milepost::batch::Batch;
use milepost::config::Config;
use milepost::decode::Decoder;
use milepost::lane::{Command, Event, Fate, Lane, Now, Settings};
use milepost::position::Timestamp;

/// 2026-11-21.
pub const WALL_MS: i64 = 1_795_219_200_000;

/// Topic and payload of each of `count` messages, of 500 drivers in turn; about 105 bytes of JSON each.
pub fn messages(count: usize) -> Vec<(String, String)> {
    let message = |n: usize| {
        let (driver, lat, ts) = (n % 500, 25.0 + n as f64 * 1e-5, WALL_MS + n as i64);
        let payload = format!(
            r#"{{"lat":{lat:.7},"lng":-80.1918012,"speed":12.4,"heading":271.5,"alt":3.2,"acc":4.5,"ts":{ts},"seq":{n}}}"#
        );
        (format!("drivers/sim-bench-{driver:06}/gps"), payload)
    };
    (0..count).map(message).collect()
}

pub fn decoder() -> Decoder {
    let config = Config::defaults().expect("the host has a name");
    Decoder::new(&config.mqtt.topics, config.decode)
}

/// A lane on a granted subscription.
pub struct Live {
    pub lane: Lane,
    now: Now,
    packet_id: u16,
}

impl Live {
    pub fn new() -> Self {
        let config = Config::defaults().expect("the host has a name");
        let settings = Settings {
            batch: config.batch,
            inserts_in_flight: config.clickhouse.inserts_in_flight,
            buffer_bytes_max: config.mqtt.buffer_bytes_max,
            receive_maximum: config.mqtt.receive_maximum,
            spool: false,
            spool_when_leaving_after: Duration::ZERO,
            leave: false,
            seed: 1,
        };
        let now = Now { instant: Instant::now(), wall: Timestamp::from_unix_ms(WALL_MS) };
        let mut live = Self { lane: Lane::new(settings, decoder()), now, packet_id: 0 };
        live.lane.handle(Event::Connected { session_present: false, receive_maximum: None }, now);
        live.lane.handle(Event::Subscribed { refusals: Vec::new() }, now);
        while live.lane.command().is_some() {}
        live
    }

    /// One QoS 1 message; the batch it completed, if it did.
    pub fn publish(&mut self, (topic, payload): &(String, String)) -> Option<Batch> {
        self.packet_id = self.packet_id % u16::MAX + 1;
        let (topic, payload) = (topic.as_bytes(), payload.as_bytes());
        let (payload_bytes, packet_id) = (payload.len(), Some(self.packet_id));
        self.lane.handle(Event::Published { topic, payload, payload_bytes, packet_id }, self.now);
        match self.lane.command() {
            Some(Command::Insert(batch)) => Some(batch),
            _ => None,
        }
    }

    /// The batch is durable; takes every acknowledgement that is due, and returns how many.
    pub fn settle(&mut self, batch: u64) -> usize {
        self.lane.handle(Event::Settled { batch, fate: Fate::Inserted }, self.now);
        let mut acks = 0;
        while self.lane.ack_due().is_some() {
            self.lane.ack_sent();
            acks += 1;
        }
        acks
    }
}
