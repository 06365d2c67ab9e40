//! What a format hands its points to: rules, bounds and rejects are the same for all.

use super::driver::Driver;
use super::extract::Pointer;
use super::ignored::Ignored;
use super::json::{RawPoints, Scalar, excerpt};
use super::keep::Origin;
use super::message::{Decoded, Message};
use super::point::{AgeLimits, Context, Point};
use super::reading::Reading;
use super::refusal::{Refusal, refuse};
use crate::pipeline::position::{DRIVER_ID_RULE, DriverId, OutOfRange};
use crate::pipeline::reject::{DETAIL_CHARS_MAX, PAYLOAD_BYTES_MAX, Reason, Reject, TOPIC_BYTES_MAX};

/// The points of one message.
pub(super) struct Points<'m> {
    pub(super) reading: &'m Reading,
    pub(super) message: Message<'m>,
    /// From the topic; `None`: the payload says it.
    pub(super) driver_id: Option<&'m DriverId>,
    /// Who, if the payload is to say it and says nothing.
    pub(super) otherwise: Option<DriverId>,
    pub(super) age: AgeLimits,
    pub(super) points_max: usize,
    /// Points that arrays have announced.
    pub(super) announced: usize,
    pub(super) out: &'m mut Decoded,
}

impl Points<'_> {
    /// One that was read.
    pub(super) fn add(&mut self, point: &Point<'_>, origin: &Origin<'_>) -> Result<(), Refusal> {
        let of_payload;
        let driver_id = match (self.driver_id, &self.reading.driver) {
            (Some(driver_id), _) => driver_id,
            (None, Driver::Payload(pointer)) => {
                of_payload = if origin.driver.is_missing() {
                    driver_in(pointer, [origin.raw, origin.within], self.otherwise)?
                } else {
                    driver_id(pointer, &origin.driver)?
                };
                &of_payload
            }
            (None, Driver::Topic(_)) => unreachable!("the decoder has read it from the topic"),
        };
        let Reading { keep, used, called, ts_unit, .. } = self.reading;
        let (attributes, cut) = keep.collect(origin, used);
        let received_at = self.message.received_at;
        let context = Context { driver_id, received_at, age: self.age, called, ts_unit: *ts_unit };
        let position = point.position(&context, attributes, &mut self.out.lacking)?;
        self.out.lacking.attributes_cut += cut;
        self.out.positions.push(position);
        Ok(())
    }

    /// A message, or a part of one, that holds no fix.
    pub(super) fn ignore(&mut self, kind: Ignored) {
        self.out.ignored.push(kind);
    }

    /// A broken part costs itself. `within`: what it came in.
    pub(super) fn refuse(&mut self, raw: &str, within: &str, refusal: Refusal) {
        let driver_id = self.driver_id.copied().or_else(|| match &self.reading.driver {
            Driver::Payload(pointer) => driver_in(pointer, [raw, within], self.otherwise).ok(),
            Driver::Topic(_) => None,
        });
        let reject = reject(self.message, driver_id, raw.as_bytes(), raw.len(), refusal);
        self.out.rejects.push(reject);
    }

    /// A payload that is one object, or an array of such.
    pub(super) fn documents(
        &mut self,
        json: &str,
        read: impl Fn(&mut Self, &str) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        match json.trim_ascii_start().as_bytes().first() {
            Some(b'{') => read(self, json),
            Some(b'[') => self.elements(json, None, read),
            _ => {
                serde_json::from_str::<serde::de::IgnoredAny>(json).map_err(|e| Refusal::from_json(&e))?;
                refuse(Reason::WrongShape, || "neither an object nor an array of objects".into())
            }
        }
    }

    /// Every element of an array, each for itself. `within`: the object that has the array.
    pub(super) fn elements(
        &mut self,
        json: &str,
        within: Option<&str>,
        read: impl Fn(&mut Self, &str) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        // The array stands in the place of one that has been announced.
        let room = self.points_max - self.announced.saturating_sub(1);
        let RawPoints { kept, count } =
            RawPoints::read(json, room).map_err(|error| Refusal::from_json(&error))?;
        if count == 0 {
            return refuse(Reason::WrongShape, || "an array of no points".into());
        }
        if count > room {
            return refuse(Reason::TooManyPoints, || {
                format!("{count} points; the limit is {} a message", self.points_max)
            });
        }
        self.announced = self.announced.saturating_sub(1) + count;
        for raw in kept {
            if let Err(refusal) = read(self, raw.get()) {
                self.refuse(raw.get(), within.unwrap_or(raw.get()), refusal);
            }
        }
        Ok(())
    }
}

/// The driver's id at the pointer, in the first of these objects that has something there; `otherwise`: if none has.
pub(super) fn driver_in(
    pointer: &Pointer,
    objects: [&str; 2],
    otherwise: Option<DriverId>,
) -> Result<DriverId, Refusal> {
    let mut value = Scalar::Missing;
    for json in objects {
        if value.is_missing() {
            value = pointer.value(json).map_err(|error| Refusal::from_json(&error))?;
        }
    }
    match otherwise {
        Some(otherwise) if value.is_missing() => Ok(otherwise),
        Some(_) | None => driver_id(pointer, &value),
    }
}

fn driver_id(pointer: &Pointer, value: &Scalar<'_>) -> Result<DriverId, Refusal> {
    let id = match value {
        Scalar::Text(text) => DriverId::new(text),
        Scalar::Integer(number) => DriverId::new(&number.to_string()),
        Scalar::Missing | Scalar::Number(_) | Scalar::Other(_) => Err(OutOfRange),
    };
    id.map_err(|OutOfRange| {
        Refusal::new(Reason::BadDriver, format!("{} is {value}; {DRIVER_ID_RULE}", pointer.as_str()))
    })
}

/// The row for what is refused.
pub(super) fn reject(
    message: Message<'_>,
    driver_id: Option<DriverId>,
    payload: &[u8],
    payload_bytes: usize,
    refusal: Refusal,
) -> Reject {
    let kept = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
    let topic = &message.topic[..message.topic.len().min(TOPIC_BYTES_MAX)];
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
