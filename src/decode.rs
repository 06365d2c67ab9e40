//! Topic and payload in, positions and rejects out: the input contract, in one place.
//!
//! Guarantee: every byte string gives at least one position or one reject, and never a panic. A broken
//! optional field costs itself, a broken point costs itself, a broken message costs itself. Refuses, in
//! this order: see [`Reason`].

mod json;

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use self::json::{RawPoints, Scalar, TEXT_CHARS_MAX, Text, excerpt};
use crate::position::{
    Accuracy, Altitude, DriverId, Heading, Latitude, Longitude, OutOfRange, Position, Qos, Speed, Timestamp,
};

/// How much of a rejected payload is kept.
pub const REJECT_PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// How much of a rejected message's topic is kept.
pub const REJECT_TOPIC_BYTES_MAX: usize = 1024;
/// How long a reject's explanation may get.
const DETAIL_CHARS_MAX: usize = 200;

/// Why a point or a message was refused. The order is the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The payload is larger than `decode.payload_bytes_max`.
    TooLarge,
    /// The topic names no driver, or one outside the rule for ids.
    BadTopic,
    /// The payload has no bytes.
    Empty,
    /// The payload is not UTF-8.
    InvalidUtf8,
    /// The payload is not JSON.
    InvalidJson,
    /// Neither an object nor an array of objects with something in it.
    WrongShape,
    /// An array of more than `decode.points_max`.
    TooManyPoints,
    /// The payload names another driver than the topic.
    DriverMismatch,
    /// `lat` or `lng` is absent or not a number.
    MissingField,
    /// `lat` outside −90..=90.
    LatRange,
    /// `lng` outside −180..=180.
    LngRange,
    /// Both exactly 0: a receiver without a fix.
    NullIsland,
    /// `ts` is neither an epoch number nor RFC 3339.
    BadTs,
    /// `ts` is older than `decode.fix_age_max`.
    TooOld,
    /// `ts` is further ahead than `decode.fix_future_max`.
    TooNew,
}

impl Reason {
    /// Every reason, in the order of the checks.
    pub const ALL: [Self; 15] = [
        Self::TooLarge,
        Self::BadTopic,
        Self::Empty,
        Self::InvalidUtf8,
        Self::InvalidJson,
        Self::WrongShape,
        Self::TooManyPoints,
        Self::DriverMismatch,
        Self::MissingField,
        Self::LatRange,
        Self::LngRange,
        Self::NullIsland,
        Self::BadTs,
        Self::TooOld,
        Self::TooNew,
    ];

    /// The name in the `rejects` table and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::BadTopic => "bad_topic",
            Self::Empty => "empty",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::InvalidJson => "invalid_json",
            Self::WrongShape => "wrong_shape",
            Self::TooManyPoints => "too_many_points",
            Self::DriverMismatch => "driver_mismatch",
            Self::MissingField => "missing_field",
            Self::LatRange => "lat_range",
            Self::LngRange => "lng_range",
            Self::NullIsland => "null_island",
            Self::BadTs => "bad_ts",
            Self::TooOld => "too_old",
            Self::TooNew => "too_new",
        }
    }
}

/// An optional field that can be unusable without costing the fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `seq`
    Seq,
    /// `speed`
    Speed,
    /// `heading`
    Heading,
    /// `alt`
    Alt,
    /// `acc`
    Acc,
}

impl Field {
    /// Every optional field.
    pub const ALL: [Self; 5] = [Self::Seq, Self::Speed, Self::Heading, Self::Alt, Self::Acc];

    /// The name in the payload and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seq => "seq",
            Self::Speed => "speed",
            Self::Heading => "heading",
            Self::Alt => "alt",
            Self::Acc => "acc",
        }
    }
}

/// One row of the `rejects` table: a refused point or message, or many of them above the flood limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// When milepost took the message from the broker.
    pub received_at: Timestamp,
    /// The message's topic, its first 1,024 bytes.
    pub topic: String,
    /// The driver, if the topic named one.
    pub driver_id: String,
    /// Why.
    pub reason: Reason,
    /// Why, in words.
    pub detail: String,
    /// The broken point, else the whole message; its first 64 KiB.
    pub payload: Vec<u8>,
    /// How long it was before the cut.
    pub payload_bytes: u64,
    /// How many refused points this row stands for.
    pub count: u64,
    /// How the message came.
    pub qos: Qos,
}

/// What one message held. Reused from message to message: [`Decoded::clear`].
#[derive(Debug, Default)]
pub struct Decoded {
    /// Good points, in the order sent.
    pub positions: Vec<Position>,
    /// Refused points, in the order sent, or one for the whole message.
    pub rejects: Vec<Reject>,
    /// Positions among these that came without `ts`.
    pub undated: u64,
    /// Unusable optional fields, by [`Field`].
    pub fields_unknown: [u64; Field::ALL.len()],
}

impl Decoded {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.positions.clear();
        self.rejects.clear();
        self.undated = 0;
        self.fields_unknown = [0; Field::ALL.len()];
    }
}

/// A message as it came from the broker.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Topic as sent.
    pub topic: &'a [u8],
    /// Payload as sent, or its beginning.
    pub payload: &'a [u8],
    /// How long it was as sent: more than `payload` holds if it was cut on the way.
    pub payload_bytes: usize,
    /// Delivery guarantee.
    pub qos: Qos,
    /// The wall clock when it was read.
    pub received_at: Timestamp,
}

/// The bounds of the input contract; `[decode]` in the configuration.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Larger payloads are refused unread.
    pub payload_bytes_max: usize,
    /// Longer arrays are refused whole.
    pub points_max: usize,
    /// Older fixes are refused.
    pub fix_age_max: Duration,
    /// Fixes further in the future are refused.
    pub fix_future_max: Duration,
}

/// Decodes messages of the configured topics.
#[derive(Debug, Clone)]
pub struct Decoder {
    topics: Vec<TopicPattern>,
    limits: Limits,
    fix_age_max_ms: i64,
    fix_future_max_ms: i64,
}

impl Decoder {
    /// `topics` are filters with one `+`, as the configuration has checked.
    #[must_use]
    pub fn new(topics: &[String], limits: Limits) -> Self {
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self {
            topics: topics.iter().map(|topic| TopicPattern::new(topic)).collect(),
            fix_age_max_ms: ms(limits.fix_age_max),
            fix_future_max_ms: ms(limits.fix_future_max),
            limits,
        }
    }

    /// Adds the message's positions and rejects to `out`.
    pub fn decode(&self, message: Message<'_>, out: &mut Decoded) {
        if let Err(refusal) = self.decode_message(message, out) {
            out.rejects.push(self.reject(message, message.payload, message.payload_bytes, refusal));
        }
    }

    fn decode_message(&self, message: Message<'_>, out: &mut Decoded) -> Result<(), Refusal> {
        if message.payload_bytes > self.limits.payload_bytes_max {
            return refuse(Reason::TooLarge, || {
                format!("{} bytes; the limit is {}", message.payload_bytes, self.limits.payload_bytes_max)
            });
        }
        if message.payload_bytes > message.payload.len() {
            return refuse(Reason::TooLarge, || {
                format!("{} bytes, in a packet above mqtt.max_packet_bytes", message.payload_bytes)
            });
        }
        let driver_id = self.driver_id(message.topic)?;
        if message.payload.is_empty() {
            return refuse(Reason::Empty, || "the payload has no bytes".into());
        }
        let json = std::str::from_utf8(message.payload)
            .map_err(|error| Refusal::new(Reason::InvalidUtf8, error.to_string()))?;

        match json.trim_ascii_start().as_bytes().first() {
            Some(b'{') => {
                let point: Point<'_> = serde_json::from_str(json).map_err(|e| Refusal::from_json(&e))?;
                let position = self.position(&point, driver_id, message, out)?;
                out.positions.push(position);
            }
            Some(b'[') => self.decode_array(json, driver_id, message, out)?,
            _ => {
                serde_json::from_str::<IgnoredAny>(json).map_err(|e| Refusal::from_json(&e))?;
                return refuse(Reason::WrongShape, || "neither an object nor an array of objects".into());
            }
        }
        Ok(())
    }

    fn decode_array(
        &self,
        json: &str,
        driver_id: DriverId,
        message: Message<'_>,
        out: &mut Decoded,
    ) -> Result<(), Refusal> {
        let RawPoints { kept, count } =
            RawPoints::read(json, self.limits.points_max).map_err(|error| Refusal::from_json(&error))?;
        if count == 0 {
            return refuse(Reason::WrongShape, || "an array of no points".into());
        }
        if count > self.limits.points_max {
            return refuse(Reason::TooManyPoints, || {
                format!("{count} points; the limit is {}", self.limits.points_max)
            });
        }
        for raw in kept {
            let decoded = match serde_json::from_str::<Point<'_>>(raw.get()) {
                Ok(point) => self.position(&point, driver_id, message, out),
                Err(error) => Err(Refusal::from_json(&error)),
            };
            match decoded {
                Ok(position) => out.positions.push(position),
                Err(refusal) => {
                    let payload = raw.get().as_bytes();
                    out.rejects.push(self.reject(message, payload, payload.len(), refusal));
                }
            }
        }
        Ok(())
    }

    fn driver_id(&self, topic: &[u8]) -> Result<DriverId, Refusal> {
        let level = std::str::from_utf8(topic)
            .ok()
            .and_then(|topic| self.topics.iter().find_map(|pattern| pattern.level(topic)))
            .ok_or_else(|| Refusal::new(Reason::BadTopic, "matches no configured topic".into()))?;
        DriverId::new(level).map_err(|OutOfRange| {
            Refusal::new(Reason::BadTopic, "a driver id is 1-64 bytes of A-Z a-z 0-9 . _ : -".into())
        })
    }

    fn position(
        &self,
        point: &Point<'_>,
        driver_id: DriverId,
        message: Message<'_>,
        out: &mut Decoded,
    ) -> Result<Position, Refusal> {
        match &point.driver_id {
            Scalar::Missing => {}
            Scalar::Text(id) if id == driver_id.as_str() => {}
            other @ (Scalar::Text(_) | Scalar::Integer(_) | Scalar::Number(_) | Scalar::Other(_)) => {
                return refuse(Reason::DriverMismatch, || {
                    format!("the payload's driver_id is {other}, the topic's \"{}\"", driver_id.as_str())
                });
            }
        }
        let lat_degrees = required("lat", &point.lat)?;
        let lng = if matches!(point.lng, Scalar::Missing) { &point.lon } else { &point.lng };
        let lng_degrees = required("lng", lng)?;
        let lat = Latitude::new(lat_degrees).map_err(|OutOfRange| {
            Refusal::new(Reason::LatRange, format!("lat {lat_degrees} is outside -90..90"))
        })?;
        let lng = Longitude::new(lng_degrees).map_err(|OutOfRange| {
            Refusal::new(Reason::LngRange, format!("lng {lng_degrees} is outside -180..180"))
        })?;
        if lat_degrees == 0.0 && lng_degrees == 0.0 {
            return refuse(Reason::NullIsland, || "lat and lng are both 0: no fix".into());
        }
        let ts = self.timestamp(&point.ts, message.received_at)?;
        out.undated += u64::from(ts.is_none());

        let mut optional = Optional { fields_unknown: &mut out.fields_unknown };
        Ok(Position {
            driver_id,
            ts: ts.unwrap_or(message.received_at),
            seq: optional.seq(&point.seq),
            lat,
            lng,
            speed: optional.number(Field::Speed, &point.speed, Speed::new).unwrap_or(Speed::UNKNOWN),
            heading: optional
                .number(Field::Heading, &point.heading, Heading::new)
                .unwrap_or(Heading::UNKNOWN),
            alt: optional.number(Field::Alt, &point.alt, Altitude::new).unwrap_or(Altitude::UNKNOWN),
            acc: optional.number(Field::Acc, &point.acc, Accuracy::new).unwrap_or(Accuracy::UNKNOWN),
            received_at: message.received_at,
            qos: message.qos,
        })
    }

    /// `None`: there is no `ts`.
    fn timestamp(&self, ts: &Scalar<'_>, received_at: Timestamp) -> Result<Option<Timestamp>, Refusal> {
        let ms = match ts {
            Scalar::Missing => return Ok(None),
            Scalar::Integer(number) => epoch_ms_from_integer(*number),
            Scalar::Number(number) => epoch_ms_from_float(*number),
            Scalar::Text(text) => chrono::DateTime::parse_from_rfc3339(text)
                .map_err(|error| {
                    Refusal::new(Reason::BadTs, format!("\"{}\": {error}", excerpt(text, TEXT_CHARS_MAX)))
                })?
                .timestamp_millis(),
            Scalar::Other(kind) => {
                return refuse(Reason::BadTs, || format!("ts is {kind}, not a number or RFC 3339"));
            }
        };
        let age_ms = received_at.unix_ms().saturating_sub(ms);
        if age_ms > self.fix_age_max_ms {
            return refuse(Reason::TooOld, || format!("the fix is {} s old", age_ms / 1000));
        }
        if age_ms < -self.fix_future_max_ms {
            return refuse(Reason::TooNew, || {
                format!("the fix is {} s ahead of us", age_ms.unsigned_abs() / 1000)
            });
        }
        Ok(Some(Timestamp::from_unix_ms(ms)))
    }

    fn reject(&self, message: Message<'_>, payload: &[u8], payload_bytes: usize, refusal: Refusal) -> Reject {
        let kept = &payload[..payload.len().min(REJECT_PAYLOAD_BYTES_MAX)];
        let topic = &message.topic[..message.topic.len().min(REJECT_TOPIC_BYTES_MAX)];
        Reject {
            received_at: message.received_at,
            topic: String::from_utf8_lossy(topic).into_owned(),
            driver_id: self.driver_id(message.topic).map_or(String::new(), |id| id.as_str().to_owned()),
            reason: refusal.reason,
            detail: excerpt(&refusal.detail, DETAIL_CHARS_MAX),
            payload: kept.to_vec(),
            payload_bytes: payload_bytes as u64,
            count: 1,
            qos: message.qos,
        }
    }
}

/// A reason with its words.
struct Refusal {
    reason: Reason,
    detail: String,
}

impl Refusal {
    fn new(reason: Reason, detail: String) -> Self {
        Self { reason, detail }
    }

    fn from_json(error: &serde_json::Error) -> Self {
        let reason = if error.is_data() { Reason::WrongShape } else { Reason::InvalidJson };
        Self::new(reason, error.to_string())
    }
}

fn refuse<T>(reason: Reason, detail: impl FnOnce() -> String) -> Result<T, Refusal> {
    Err(Refusal::new(reason, detail()))
}

fn required(name: &str, value: &Scalar<'_>) -> Result<f64, Refusal> {
    let refusal = || Refusal::new(Reason::MissingField, format!("{name} is {value}, not a number"));
    value.as_f64().ok_or_else(refusal)
}

/// Reads optional fields; an unusable one is unknown, and counted.
struct Optional<'a> {
    fields_unknown: &'a mut [u64; Field::ALL.len()],
}

impl Optional<'_> {
    fn number<T>(
        &mut self,
        field: Field,
        value: &Scalar<'_>,
        new: fn(f64) -> Result<T, OutOfRange>,
    ) -> Option<T> {
        if matches!(value, Scalar::Missing) {
            return None;
        }
        let number = value.as_f64().and_then(|number| new(number).ok());
        self.fields_unknown[field as usize] += u64::from(number.is_none());
        number
    }

    fn seq(&mut self, value: &Scalar<'_>) -> u32 {
        let seq = match value {
            Scalar::Missing => Some(0),
            Scalar::Integer(number) => u32::try_from(*number).ok(),
            Scalar::Number(_) | Scalar::Text(_) | Scalar::Other(_) => None,
        };
        self.fields_unknown[Field::Seq as usize] += u64::from(seq.is_none());
        seq.unwrap_or(0)
    }
}

/// Seconds below 1e11, milliseconds below 1e14, microseconds below 1e17, else nanoseconds.
fn epoch_ms_from_integer(number: i64) -> i64 {
    match number.unsigned_abs() {
        0..100_000_000_000 => number * 1_000,
        100_000_000_000..100_000_000_000_000 => number,
        100_000_000_000_000..100_000_000_000_000_000 => number / 1_000,
        _ => number / 1_000_000,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates; what saturates is then too old or too new"
)]
fn epoch_ms_from_float(number: f64) -> i64 {
    let ms = match number.abs() {
        ..1e11 => number * 1e3,
        ..1e14 => number,
        ..1e17 => number / 1e3,
        _ => number / 1e6,
    };
    ms.round() as i64
}

/// A topic filter with one `+`, split around it.
#[derive(Debug, Clone)]
struct TopicPattern {
    before: String,
    after: String,
}

impl TopicPattern {
    fn new(filter: &str) -> Self {
        let (before, after) =
            filter.split_once('+').expect("the configuration wants exactly one + in a topic");
        Self { before: before.to_owned(), after: after.to_owned() }
    }

    /// The level of `topic` that the `+` stands for.
    fn level<'a>(&self, topic: &'a str) -> Option<&'a str> {
        let level = topic.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        (!level.contains('/')).then_some(level)
    }
}

/// A point as sent, before any rule but JSON's own. A key that comes twice: the last one counts.
#[derive(Debug, Default)]
struct Point<'a> {
    driver_id: Scalar<'a>,
    lat: Scalar<'a>,
    lng: Scalar<'a>,
    lon: Scalar<'a>,
    ts: Scalar<'a>,
    seq: Scalar<'a>,
    speed: Scalar<'a>,
    heading: Scalar<'a>,
    alt: Scalar<'a>,
    acc: Scalar<'a>,
}

impl<'de> Deserialize<'de> for Point<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PointVisitor)
    }
}

struct PointVisitor;

impl<'de> Visitor<'de> for PointVisitor {
    type Value = Point<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with lat and lng")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut point = Point::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            let value = match &*key.0 {
                "driver_id" => &mut point.driver_id,
                "lat" => &mut point.lat,
                "lng" => &mut point.lng,
                "lon" => &mut point.lon,
                "ts" => &mut point.ts,
                "seq" => &mut point.seq,
                "speed" => &mut point.speed,
                "heading" => &mut point.heading,
                "alt" => &mut point.alt,
                "acc" => &mut point.acc,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *value = map.next_value()?;
        }
        Ok(point)
    }
}
