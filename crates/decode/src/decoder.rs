//! Decodes a message into positions and rejects.

use std::borrow::Cow;
use std::time::Duration;

use super::age::AgeLimits;
use super::decoded::Decoded;
use super::driver::Named;
use super::formats;
use super::ignored::Ignored;
use super::points::{Points, reject};
use super::presence::is_presence;
use super::reference_system::{Place, check_system_around};
use super::refusal::{Refusal, refuse};
use super::repair::repaired;
use super::source::Source;
use super::unpack::unpack;
use super::unread_zone::check_zone_of_enclosing;
use crate::message::Message;
use crate::position::{DRIVER_ID_RULE, DriverId, OutOfRange, Timestamp};
use crate::reject::Reason;

/// The limits of the input contract.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum bytes of a payload, as sent and after unpacking.
    pub payload_bytes_max: usize,
    /// Maximum number of points in a message.
    pub points_max: usize,
    /// Maximum age of a fix at the time of receipt.
    pub fix_age_max: Duration,
    /// Maximum time by which a fix may be later than its receipt.
    pub fix_future_max: Duration,
}

/// The defaults of the configuration.
impl Default for Limits {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self {
            payload_bytes_max: 1024 * 1024,
            points_max: 10_000,
            fix_age_max: 30 * DAY,
            fix_future_max: Duration::from_secs(300),
        }
    }
}

/// Decodes messages by the sources and limits of a configuration.
#[derive(Debug, Clone)]
pub struct Decoder {
    sources: Vec<Source>,
    limits: Limits,
    age: AgeLimits,
}

impl Decoder {
    /// Creates a decoder. No topic may match two of the `sources`.
    #[must_use]
    pub fn new(sources: &[Source], limits: Limits) -> Self {
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let age = AgeLimits {
            past_ms: ms(limits.fix_age_max),
            future_ms: ms(limits.fix_future_max),
            past_key: "decode.fix_age_max",
        };
        Self { sources: sources.to_vec(), limits, age }
    }

    /// Sets the configuration key that errors name for the age limit, instead of
    /// `decode.fix_age_max`.
    #[must_use]
    pub fn with_age_key(mut self, key: &'static str) -> Self {
        self.age.past_key = key;
        self
    }

    /// Returns a decoder that lists the unread fields. The list costs another pass.
    #[must_use]
    pub fn listing_unread(mut self) -> Self {
        self.sources.iter_mut().for_each(|source| source.schema.lists_unread = true);
        self
    }

    /// Returns a decoder that rejects a point if an unread field states a hemisphere that
    /// contradicts the sign of its coordinate. This costs another pass.
    #[must_use]
    pub fn checking_hemispheres(mut self) -> Self {
        self.sources.iter_mut().for_each(|source| source.schema.checks_hemispheres = true);
        self
    }

    /// Appends the message's positions, rejects and ignored parts to `out`. `received_at`: the wall
    /// clock when the message was read.
    pub fn decode(&self, message: Message<'_>, received_at: Timestamp, out: &mut Decoded) {
        self.decode_part(message, received_at, None, out);
    }

    /// Like [`decode`](Self::decode), for a part of a message, such as a rejected point.
    /// `fallback`: the driver to use if the source reads the driver from the payload and this part
    /// has none.
    pub fn decode_part(
        &self,
        message: Message<'_>,
        received_at: Timestamp,
        fallback: Option<DriverId>,
        out: &mut Decoded,
    ) {
        let mut unpacked = Cow::Borrowed(message.payload);
        let Err(refusal) = self.decode_message(message, &mut unpacked, received_at, fallback, out)
        else {
            return;
        };
        let may_be_presence =
            matches!(
                refusal.reason,
                Reason::InvalidJson | Reason::WrongShape | Reason::InvalidSentence
            ) || matches!(refusal.reason, Reason::UnknownFormatKind | Reason::MissingField);
        if may_be_presence && is_presence(&unpacked) {
            out.ignored.push(Ignored::Presence);
            return;
        }
        let driver_id = self.find_driver(Message { payload: &unpacked, ..message }, fallback);
        let Message { topic, payload, payload_bytes, .. } = message;
        out.rejects.push(reject(topic, received_at, driver_id, (payload, payload_bytes), refusal));
    }

    /// Unpacks and decodes a message. `payload`: the bytes as sent. If they must be unpacked or
    /// repaired, the function replaces them by the bytes that it has read.
    fn decode_message(
        &self,
        message: Message<'_>,
        payload: &mut Cow<'_, [u8]>,
        received_at: Timestamp,
        fallback: Option<DriverId>,
        out: &mut Decoded,
    ) -> Result<(), Refusal> {
        self.check_size(message)?;
        let found = self.find_source(message.topic);
        let (index, Source { schema, format, .. }, driver) = found.ok_or_else(|| {
            out.is_foreign = true;
            Refusal::new(Reason::BadTopic, "the topic matches no source")
        })?;
        out.source = Some(index);
        let Ok(driver) = &driver else {
            let remedy = "to map other bytes, set driver_other of the source";
            return refuse(Reason::BadTopic, format!("{DRIVER_ID_RULE}; {remedy}"));
        };
        let (is_json, bytes_max) = (format.is_json(), self.limits.payload_bytes_max);
        let is_time = |name: &str| schema.may_be_time(name);
        if let Some(text) = unpack(payload, is_json, is_time, bytes_max)? {
            *payload = Cow::Owned(text);
        }
        if payload.last() == Some(&0) {
            // A C program may send `strlen() + 1` bytes, or pad the payload with zeros to a
            // multiple of four bytes.
            let end = payload.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            match payload {
                Cow::Borrowed(bytes) => *payload = Cow::Borrowed(&bytes[..end]),
                Cow::Owned(bytes) => bytes.truncate(end),
            }
        }
        if payload.is_empty() {
            return refuse(Reason::Empty, "the payload has no bytes");
        }
        let (age, points_max) = (&self.age, self.limits.points_max);
        let mut points = Points {
            schema,
            topic: message.topic,
            received_at,
            driver,
            fallback,
            age,
            points_max,
            elements_seen: 0,
            outer_time: None,
            outer_zone: None,
            outer_driver: None,
            out,
        };
        let read = formats::read(format, &mut points, payload);
        // An invalid message has added nothing to `out`, so it can be read again.
        if let Err(Refusal { reason: Reason::InvalidJson, .. }) = &read
            && let Some(json) = repaired(payload)
        {
            let again = formats::read(format, &mut points, &json);
            *payload = Cow::Owned(json);
            return again;
        }
        read
    }

    /// Checks the object around an array of points. Such an object may state how the points are
    /// written: the units of their numbers (`"speed_unit":"mph"` in a FeatureCollection), the
    /// reference system of their coordinates, or the zone of their times. `frame`: the object's
    /// JSON without the array. `settled`: the fields whose unit is already known.
    ///
    /// # Errors
    /// The object states a unit, reference system or zone that contradicts a source. The error
    /// states the remedy.
    pub fn check_frame(&self, frame: &[u8], settled: &[&str]) -> Result<(), String> {
        let mut sources = self.sources.iter();
        sources.try_for_each(|source| {
            let zone = source.schema.local.as_ref().and_then(|local| local.zone.as_ref());
            let checked = source.format.check_frame(frame, settled);
            checked
                .and_then(|()| check_system_around(frame, &source.schema.keep, Place::File))
                .and_then(|()| zone.map_or(Ok(()), |zone| check_zone_of_enclosing(frame, zone)))
                .map_err(|refusal| refusal.detail)
        })
    }

    fn check_size(&self, message: Message<'_>) -> Result<(), Refusal> {
        if message.payload_bytes > self.limits.payload_bytes_max {
            return refuse(
                Reason::TooLarge,
                format!(
                    "the payload has {} bytes; the limit is {}",
                    message.payload_bytes, self.limits.payload_bytes_max
                ),
            );
        }
        if message.payload_bytes > message.payload.len() {
            return refuse(
                Reason::TooLarge,
                format!(
                    "the payload has {} bytes, in a packet above mqtt.max_packet_bytes",
                    message.payload_bytes
                ),
            );
        }
        Ok(())
    }

    /// Returns the source of a topic with its index, and the driver that the topic names.
    fn find_source(&self, topic: &[u8]) -> Option<(usize, &Source, Result<Named<'_>, OutOfRange>)> {
        let mut sources = self.sources.iter().enumerate();
        sources.find_map(|(index, source)| Some((index, source, source.driver_in(topic)?)))
    }

    /// Returns the sources' filters, in the order of the sources.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(Source::topic)
    }

    /// Returns the driver of a rejected or ignored message, if the topic or an uncompressed payload
    /// names one.
    #[must_use]
    pub fn find_driver(
        &self,
        message: Message<'_>,
        fallback: Option<DriverId>,
    ) -> Option<DriverId> {
        let (_, _, driver) = self.find_source(message.topic)?;
        // No point is known: the whole payload stands for it.
        driver.ok()?.id(message.payload, fallback).ok()
    }
}
