//! From a message to its points.

use std::time::Duration;

use serde::de::IgnoredAny;

use super::json::{RawPoints, excerpt};
use super::message::{Decoded, Message};
use super::point::{AgeLimits, Context, Point};
use super::refusal::{Refusal, refuse};
use super::topic::TopicPattern;
use crate::pipeline::position::{DriverId, OutOfRange};
use crate::pipeline::reject::{DETAIL_CHARS_MAX, PAYLOAD_BYTES_MAX, Reason, Reject, TOPIC_BYTES_MAX};

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
    age: AgeLimits,
}

impl Decoder {
    /// `topics` are filters with one `+`, as the configuration has checked.
    #[must_use]
    pub fn new(topics: &[String], limits: Limits) -> Self {
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let age = AgeLimits { past_ms: ms(limits.fix_age_max), future_ms: ms(limits.fix_future_max) };
        Self { topics: topics.iter().map(|topic| TopicPattern::new(topic)).collect(), limits, age }
    }

    /// Adds the message's positions and rejects to `out`.
    pub fn decode(&self, message: Message<'_>, out: &mut Decoded) {
        if let Err(refusal) = self.decode_message(message, out) {
            out.rejects.push(self.reject(message, message.payload, message.payload_bytes, refusal));
        }
    }

    fn decode_message(&self, message: Message<'_>, out: &mut Decoded) -> Result<(), Refusal> {
        self.check_size(message)?;
        let level = self.driver_level(message.topic).inspect_err(|_| out.is_foreign = true)?;
        let driver_id = driver_id(level)?;
        if message.payload.is_empty() {
            return refuse(Reason::Empty, || "the payload has no bytes".into());
        }
        let json = std::str::from_utf8(message.payload)
            .map_err(|error| Refusal::new(Reason::InvalidUtf8, error.to_string()))?;

        match json.trim_ascii_start().as_bytes().first() {
            Some(b'{') => {
                let point: Point<'_> = serde_json::from_str(json).map_err(|e| Refusal::from_json(&e))?;
                let position = point.position(self.context(driver_id, message), &mut out.lacking)?;
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

    fn check_size(&self, message: Message<'_>) -> Result<(), Refusal> {
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
                Ok(point) => point.position(self.context(driver_id, message), &mut out.lacking),
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

    fn context(&self, driver_id: DriverId, message: Message<'_>) -> Context {
        Context { driver_id, received_at: message.received_at, age: self.age }
    }

    /// The level of the topic that names the driver.
    fn driver_level<'a>(&self, topic: &'a [u8]) -> Result<&'a str, Refusal> {
        let topic = std::str::from_utf8(topic).ok();
        topic.and_then(|topic| self.topics.iter().find_map(|pattern| pattern.level(topic))).ok_or_else(|| {
            Refusal::new(Reason::BadTopic, "matches no filter of mqtt.topics (see mqtt.unsubscribe)".into())
        })
    }

    fn reject(&self, message: Message<'_>, payload: &[u8], payload_bytes: usize, refusal: Refusal) -> Reject {
        let kept = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
        let topic = &message.topic[..message.topic.len().min(TOPIC_BYTES_MAX)];
        let driver_id = self.driver_level(message.topic).and_then(driver_id);
        Reject {
            received_at: message.received_at,
            topic: String::from_utf8_lossy(topic).into_owned(),
            driver_id: driver_id.map_or(String::new(), |id| id.as_str().to_owned()),
            reason: refusal.reason,
            detail: excerpt(&refusal.detail, DETAIL_CHARS_MAX),
            payload: kept.to_vec(),
            payload_bytes: payload_bytes as u64,
            count: 1,
        }
    }
}

fn driver_id(level: &str) -> Result<DriverId, Refusal> {
    DriverId::new(level).map_err(|OutOfRange| {
        Refusal::new(Reason::BadTopic, "a driver id is 1-64 bytes of A-Z a-z 0-9 . _ : -".into())
    })
}
