//! The workload of both benchmarks: messages as a fleet sends them, handled by a connected
//! consumer.

use std::time::{Duration, Instant};

use loadgen::fleet::Fix;
use loadgen::format::Format;
use milepost_config::Config;
use milepost_core::batch::Batch;
use milepost_core::consumer::{self, Connections, Consumer, Now};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::events::{DeliveryCommand, Outcome, Report, ServerStatus};
use milepost_core::delivery::policy::{self, Delivery};
use milepost_core::intake::{self, Intake};
use milepost_core::session::ConnAck;
use milepost_core::session::events::{self, SessionEvent};
use milepost_decode::Decoder;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;

/// Wall clock of the benchmarks, 2026-11-21, in milliseconds since the epoch.
pub const WALL_MS: i64 = 1_795_219_200_000;

/// Returns topic and payload of `count` messages in milepost's own format, from 500 drivers in
/// turn. Each payload has about 115 bytes.
pub fn messages(count: usize) -> Vec<(String, String)> {
    let message = |seq: usize| {
        let (driver, lat, ts) = (seq % 500, 25.0 + seq as f64 * 1e-5, WALL_MS + seq as i64);
        let place = format!(r#""lat":{lat:.7},"lng":-80.1918012"#);
        let motion = r#""speed":12.4,"heading":271.5,"alt":3.2,"acc":4.5"#;
        let payload = format!(r#"{{{place},{motion},"ts":{ts},"seq":{seq}}}"#);
        (format!("drivers/sim-bench-{driver:06}/gps"), payload)
    };
    (0..count).map(message).collect()
}

/// Returns the points of these messages in arrays of `points` points. Each array has the topic of
/// its first point.
pub fn arrays(messages: &[(String, String)], points: usize) -> Vec<(String, String)> {
    let array = |messages: &[(String, String)]| {
        let payloads: Vec<_> = messages.iter().map(|(_, payload)| payload.as_str()).collect();
        (messages[0].0.clone(), format!("[{}]", payloads.join(",")))
    };
    messages.chunks(points).map(array).collect()
}

/// Returns topic and payload of `count` messages in this format, from 500 drivers in turn, as
/// devices of that format write them.
pub fn messages_in(format: Format, count: usize) -> Vec<(String, String)> {
    let count = u32::try_from(count).expect("a few thousand");
    let message = |seq: u32| {
        let driver = format!("sim-bench-{:06}", seq % 500);
        let (lat, ts_ms) = (25.0 + f64::from(seq) * 1e-5, WALL_MS + i64::from(seq));
        let fix = Fix {
            lat,
            lng: -80.191_801_2,
            speed_mps: 12.4,
            heading_deg: 271.5,
            acc_m: 4.5,
            ts_ms,
            seq,
        };
        let mut payload = String::new();
        format.write(&driver, &[fix], &mut payload);
        (format.topic(&driver), payload)
    };
    (0..count).map(message).collect()
}

/// Returns the decoder of the default configuration.
pub fn decoder() -> Decoder {
    let config = Config::defaults().expect("the host has a name");
    Decoder::new(&config.sources, config.decode)
}

/// Returns a decoder of this format. `keep`: a further line for its `[[sources]]`, or empty.
pub fn decoder_for(format: Format, keep: &str) -> Decoder {
    let config =
        Config::parse(&format!("{}{keep}", format.source())).expect("the source is well formed");
    Decoder::new(&config.sources, config.decode)
}

/// A consumer with one subscribed session, while ClickHouse is ready.
pub struct LiveConsumer {
    pub consumer: Consumer,
    now: Now,
    packet_id: u16,
}

impl LiveConsumer {
    pub fn new(decoder: Decoder) -> Self {
        let config = Config::defaults().expect("the host has a name");
        let seed = 1;
        let intake = intake::IntakeConfig {
            batch: config.batch,
            buffer_bytes_max: config.mqtt.buffer_bytes_max,
        };
        let delivery = policy::DeliveryConfig {
            inserts_in_flight: config.clickhouse.inserts_in_flight,
            has_spool: false,
            may_drop_rows: true,
            insert_timeout: config.clickhouse.insert_timeout,
            store_when_leaving_after: Duration::ZERO,
            incarnation: 1,
            seed,
        };
        let settings = consumer::ConsumerConfig {
            nodes: vec!["broker:1883".into()],
            connections: Connections::Fixed(1),
            session: events::SessionConfig {
                receive_maximum: config.mqtt.receive_maximum,
                answer_timeout: config.mqtt.connect_timeout,
                session_expiry: config.mqtt.session_expiry,
                seed,
            },
            window_wanted: 0,
            qos: config.mqtt.qos,
            buffer_bytes_max: config.mqtt.buffer_bytes_max,
            members_age_max: Duration::ZERO,
            clock_jump_max: Duration::from_secs(300),
        };
        let now = Now { instant: Instant::now(), wall: Timestamp::from_unix_ms(WALL_MS) };
        let (intake, delivery) =
            (Intake::new(intake, decoder), Delivery::new(delivery, SpoolInventory::default()));
        let mut consumer = Consumer::new(settings, intake, delivery);
        consumer.handle_server_status(ServerStatus::ready(), now.instant);
        consumer.handle_event(0, SessionEvent::Connected(ConnAck::default()), now.instant);
        consumer.handle_event(0, SessionEvent::Subscribed { refusals: Vec::new() }, now.instant);
        consumer.handle_timeout(now.instant);
        while consumer.session_mut(0).poll_command().is_some() {}
        Self { consumer, now, packet_id: 0 }
    }

    /// Handles one message at QoS 1. Returns the batch that it completed, if any.
    pub fn publish(&mut self, (topic, payload): &(String, String)) -> Option<Batch> {
        self.packet_id = self.packet_id % u16::MAX + 1;
        let packet_id = Some(self.packet_id);
        let message = Message { packet_id, ..Message::new(topic.as_bytes(), payload.as_bytes()) };
        self.consumer.handle_publish(0, message, self.now);
        match self.consumer.poll_command() {
            Some(DeliveryCommand::Encode(batch)) => Some(batch),
            _ => None,
        }
    }

    /// Reports the batch as inserted, marks every due acknowledgement as sent, and returns their
    /// number.
    pub fn confirm_batch(&mut self, batch: u64) -> usize {
        let outcome = Outcome::Inserted { took: Duration::from_millis(1), erased: 0 };
        self.consumer.handle_report(Report { batch, outcome }, self.now.instant);
        self.consumer.handle_timeout(self.now.instant);
        while self.consumer.poll_command().is_some() {}
        while self.consumer.poll_durable().is_some() {}
        let mut acks = 0;
        while self.consumer.session(0).ack_due().is_some() {
            self.consumer.session_mut(0).ack_sent();
            acks += 1;
        }
        acks
    }
}
