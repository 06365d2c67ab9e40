//! Collects the points of a format: the rules, limits and rejects are the same for all formats.

use super::age::AgeLimits;
use super::decoded::Decoded;
use super::driver::{Named, id_of};
use super::ignored::Ignored;
use super::json::{Scalar, excerpt, raw_points};
use super::keep::{Keep, Origin};
use super::names::{self, UnreadTime};
use super::plain::Plain;
use super::point::{Context, Point};
use super::reading::Reading;
use super::refusal::{Refusal, refuse};
use crate::position::{DriverId, Timestamp};
use crate::reject::{DETAIL_CHARS_MAX, PAYLOAD_BYTES_MAX, Reason, Reject, TOPIC_BYTES_MAX};

pub(super) struct Points<'m> {
    pub(super) reading: &'m Reading,
    pub(super) topic: &'m [u8],
    pub(super) received_at: Timestamp,
    pub(super) driver: &'m Named<'m>,
    /// The driver to use if the payload should name one and does not.
    pub(super) fallback: Option<DriverId>,
    pub(super) age: &'m AgeLimits,
    pub(super) points_max: usize,
    /// Number of array elements so far.
    pub(super) elements_seen: usize,
    /// The time in the object around the current points, after the first of them without a time.
    pub(super) time_beside: Option<Option<UnreadTime>>,
    pub(super) out: &'m mut Decoded,
}

impl Points<'_> {
    pub(super) fn add(&mut self, point: &Point<'_>, origin: &Origin<'_>) -> Result<(), Refusal> {
        let payload_id;
        let driver_id = match self.driver {
            Named::InTopic(id) => id,
            Named::InPayload(pointer, other) => {
                // A number that is not an i64 is read again, digit by digit.
                payload_id = if matches!(origin.driver, Scalar::Missing | Scalar::Number(_)) {
                    self.driver.id([origin.raw, origin.within], self.fallback)?
                } else {
                    id_of(pointer, *other, &origin.driver)?
                };
                &payload_id
            }
        };
        let Self { reading, received_at, age, .. } = *self;
        let substitute;
        let ts = if point.ts.is_missing() {
            substitute = names::time_in(origin.raw, reading, received_at)?;
            if substitute.is_missing() {
                self.check_time_beside(origin)?;
            }
            &substitute
        } else {
            &point.ts
        };
        if point.has_hemisphere {
            let lng = if point.lng.is_missing() { &point.lon } else { &point.lng };
            names::check_hemispheres(origin.raw, [&point.lat, lng])?;
        }
        let context = Context { ts, driver_id, received_at, age, reading };
        let position = point.position(&context, &mut self.out.lacking).map_err(|refusal| {
            if refusal.reason == Reason::MissingField {
                names::hint(refusal, origin.raw, reading)
            } else {
                refusal
            }
        })?;
        if reading.lists_unread {
            names::unread(origin, reading, &mut self.out.unread);
        }
        if reading.checks_hemispheres {
            let has_one = &mut self.out.has_hemisphere;
            names::check_unread_hemispheres(origin, reading, [&point.lat, &point.lng], has_one)?;
        }
        self.out.positions.push(position);
        if let Some(position) = self.out.positions.last_mut()
            && !matches!(reading.keep, Keep::Nothing)
        {
            let (attributes, cut) = reading.keep.collect(origin, &reading.used);
            position.attributes = attributes;
            self.out.lacking.attributes_cut += cut;
        }
        Ok(())
    }

    /// Checks the object around a point that has no time.
    ///
    /// # Errors
    /// The object has a time. With the time of receipt instead, the fix would be wrong.
    #[cold]
    fn check_time_beside(&mut self, origin: &Origin<'_>) -> Result<(), Refusal> {
        let Some(ts) = &self.reading.ts_called else { return Ok(()) };
        if std::ptr::eq(origin.raw, origin.within) {
            return Ok(());
        }
        let received_at = self.received_at;
        let beside = self
            .time_beside
            .get_or_insert_with(|| names::unread_time(origin.within, false, received_at));
        match beside {
            Some(UnreadTime { path, value, .. }) => refuse(
                Reason::BadTs,
                format!(
                    "there is no {ts} in the point, but {path:.60} beside the points is \
                     {value:.40}: send the time in each point"
                ),
            ),
            None => Ok(()),
        }
    }

    pub(super) fn ignore(&mut self, kind: Ignored) {
        self.out.ignored.push(kind);
    }

    /// Rejects a part of the message. `within`: the object or array around it.
    pub(super) fn refuse(&mut self, raw: &[u8], within: &[u8], refusal: Refusal) {
        let driver_id = self.driver.id([raw, within], self.fallback).ok();
        let reject = reject(self.topic, self.received_at, driver_id, (raw, raw.len()), refusal);
        self.out.rejects.push(reject);
    }

    /// Reads a payload in milepost's own format in one pass. Returns `None`, and leaves the result
    /// unchanged, if the payload is not plain.
    pub(super) fn plain_documents(&mut self, json: &[u8]) -> Option<Result<(), Refusal>> {
        if self.reading.is_serde_json_only {
            return None;
        }
        let mut plain = Plain::new(json);
        if plain.peek() != b'[' {
            let mut point = Point::default();
            point.fill_plain(&mut plain)?;
            plain.end()?;
            return Some(self.add(&point, &Origin::whole(json)));
        }
        let (positions, rejects, lacking) =
            (self.out.positions.len(), self.out.rejects.len(), self.out.lacking);
        let mut count = 0;
        let read = plain.array(|plain| {
            let rest = plain.rest();
            let mut point = Point::default();
            point.fill_plain(plain)?;
            count += 1;
            let raw = plain.read_of(rest);
            if count > self.points_max {
                return None;
            }
            if let Err(refusal) = self.add(&point, &Origin::whole(raw)) {
                self.refuse(raw, raw, refusal);
            }
            Some(())
        });
        if read.is_none() || count == 0 || plain.end().is_none() {
            self.out.positions.truncate(positions);
            self.out.rejects.truncate(rejects);
            self.out.lacking = lacking;
            return None;
        }
        Some(Ok(()))
    }

    /// Reads a payload that is an object, or an array of objects.
    pub(super) fn documents(
        &mut self,
        json: &str,
        read: impl Fn(&mut Self, &str) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        match json.trim_ascii_start().as_bytes().first() {
            Some(b'{') => read(self, json),
            Some(b'[') => self.elements(json, None, read),
            _ => {
                serde_json::from_str::<serde::de::IgnoredAny>(json)?;
                refuse(
                    Reason::WrongShape,
                    "the payload is neither an object nor an array of objects",
                )
            }
        }
    }

    /// Reads each element of an array. `within`: the object that contains the array.
    pub(super) fn elements(
        &mut self,
        json: &str,
        within: Option<&str>,
        read: impl Fn(&mut Self, &str) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        // A nested array takes the place of one element.
        let room = self.points_max - self.elements_seen.saturating_sub(1);
        let (kept, count) = raw_points(json, room)?;
        if count == 0 {
            return refuse(Reason::WrongShape, "the array has no points");
        }
        if count > room {
            return refuse(
                Reason::TooManyPoints,
                format!("the message has {count} points; the limit is {}", self.points_max),
            );
        }
        self.elements_seen = self.elements_seen.saturating_sub(1) + count;
        self.time_beside = None;
        for raw in kept {
            if let Err(refusal) = read(self, raw.get()) {
                let raw = raw.get().as_bytes();
                self.refuse(raw, within.map_or(raw, str::as_bytes), refusal);
            }
        }
        Ok(())
    }
}

/// Creates a row of `rejects`, with the payload's length as sent.
pub(super) fn reject(
    topic: &[u8],
    received_at: Timestamp,
    driver_id: Option<DriverId>,
    (payload, payload_bytes): (&[u8], usize),
    refusal: Refusal,
) -> Reject {
    let kept = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
    let topic = &topic[..topic.len().min(TOPIC_BYTES_MAX)];
    Reject {
        received_at,
        topic: String::from_utf8_lossy(topic).into_owned(),
        driver_id: driver_id.map_or(String::new(), |id| id.as_str().to_owned()),
        reason: refusal.reason,
        detail: excerpt(&refusal.detail, DETAIL_CHARS_MAX),
        payload: kept.to_vec(),
        payload_bytes: payload_bytes as u64,
        count: 1,
    }
}
