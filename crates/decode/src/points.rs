//! Collects the points of a format: the rules, limits and rejects are the same for all formats.

use super::age::AgeLimits;
use super::decoded::Decoded;
use super::driver::{Named, parse_id};
use super::field_flags::Unknown;
use super::ignored::Ignored;
use super::json::{Scalar, excerpt};
use super::keep::{Kept, Origin};
use super::names;
use super::other_points::other_points;
use super::point::{Context, Point};
use super::reader::{Reader, as_text, elements};
use super::reference_system::check_system;
use super::refusal::{Refusal, invalid, refuse};
use super::schema::Schema;
use super::unread_fix::{ReadPaths, check_fix};
use super::unread_time::{self, UnreadTime};
use super::unread_unit;
use super::unread_zone;
use crate::position::{DriverId, Timestamp};
use crate::reject::{DETAIL_CHARS_MAX, PAYLOAD_BYTES_MAX, Reason, Reject, TOPIC_BYTES_MAX};

/// Collects the points of one message, and holds the values that all of them share.
pub(super) struct Points<'m> {
    pub(super) schema: &'m Schema,
    pub(super) topic: &'m [u8],
    pub(super) received_at: Timestamp,
    pub(super) driver: &'m Named<'m>,
    /// The driver to use if the source reads the driver from the payload and the payload has none.
    pub(super) fallback: Option<DriverId>,
    pub(super) age: &'m AgeLimits,
    pub(super) points_max: usize,
    /// Number of array elements so far.
    pub(super) elements_seen: usize,
    /// The result of the search for a time in the object around the current points; `None` until
    /// the first point without a time needs it.
    pub(super) outer_time: Option<Option<UnreadTime>>,
    /// The result of [`check_zone_of_enclosing`](unread_zone::check_zone_of_enclosing) for the
    /// object around the current points; `None` until the first point with a time as text needs it.
    pub(super) outer_zone: Option<Result<(), Refusal>>,
    /// The driver that the object around the current points names; `None` until the first point
    /// without a driver needs it.
    pub(super) outer_driver: Option<Result<Option<DriverId>, Refusal>>,
    pub(super) out: &'m mut Decoded,
}

impl Points<'_> {
    /// Adds the position of a point.
    ///
    /// # Errors
    /// The point breaks a rule. The caller rejects the point.
    pub(super) fn add(&mut self, point: &Point<'_>, origin: &Origin<'_>) -> Result<(), Refusal> {
        let payload_id;
        let driver_id = match self.driver {
            Named::InTopic(id) => id,
            Named::InPayload(pointer, other_bytes) => {
                // A number that is not an i64 is read again, so that all of its digits count.
                payload_id = if matches!(origin.driver, Scalar::Missing | Scalar::Number(_)) {
                    self.driver_in(origin.raw, origin.enclosing)?
                } else {
                    parse_id(pointer, *other_bytes, &origin.driver)?
                };
                &payload_id
            }
        };
        let Self { schema, received_at, age, .. } = *self;
        let substitute;
        let ts = if point.ts.is_missing() {
            substitute = unread_time::substitute_time(origin, schema, received_at)?;
            if substitute.is_missing() {
                self.check_outer_time(origin)?;
            }
            &substitute
        } else {
            &point.ts
        };
        if point.has_key_to_check {
            let lng = if point.lng.is_missing() { &point.lon } else { &point.lng };
            names::check_hemispheres(origin.raw, [&point.lat, lng])?;
            let kept = Kept { keep: &schema.keep, root: origin.root };
            unread_unit::check_units(origin.raw, &unread_unit::own_fields(), kept)?;
            unread_zone::check_utc_flag(origin.raw, ts)?;
        }
        let context = Context { ts, driver_id, received_at, age, schema };
        let required = match point.required(&context) {
            Ok(required) => required,
            Err(refusal) if refusal.reason == Reason::MissingField => {
                return Err(names::hint(refusal, origin.raw, schema));
            }
            Err(refusal) => return Err(refusal),
        };
        if required.is_whole_degrees() {
            names::check_minutes(origin.raw)?;
        }
        if point.has_key_to_check || point.may_have_no_fix {
            check_system(origin.raw, origin.root, &schema.keep)?;
        }
        let mut unknown = Unknown::default();
        if point.may_have_no_fix {
            let Schema { lat_lng_names: [lat, _], parents, used, keep, .. } = schema;
            let read = ReadPaths { lat, parents, all: used };
            let has_time = required.ts.is_some();
            unknown = check_fix(origin.raw, origin.root, &read, keep, has_time)?;
        }
        if let Some(local) = &schema.local
            && let (Some(text), Some(ts)) = (ts.as_text(), required.ts)
        {
            unread_zone::check_zone(origin.raw, local, text, ts)?;
            self.check_outer_zone(origin, text)?;
        }
        if schema.lists_unread {
            names::collect_unread(origin, schema, &mut self.out.unread);
        }
        if schema.checks_hemispheres {
            let found = &mut self.out.has_hemisphere;
            names::check_unread_hemispheres(origin, schema, [&point.lat, &point.lng], found)?;
        }
        let (attributes, dropped) = schema.keep.collect(origin, &schema.used);
        self.out.omissions.attributes_cut += dropped;
        let position = point.position(&context, required, attributes, &mut self.out.omissions);
        self.out.positions.push(position);
        if unknown.contains(&true)
            && let Some(position) = self.out.positions.last_mut()
        {
            self.out.omissions.clear(position, unknown);
        }
        if point.has_key_to_check {
            self.refuse_other_points(origin.raw, &[]);
        }
        Ok(())
    }

    /// Returns the driver that a point names, or else the driver that the object around the point
    /// names. Searches that object once for all of its points.
    ///
    /// # Errors
    /// The value is not a driver id, or there is neither a value nor a fallback.
    fn driver_in(&mut self, raw: &[u8], enclosing: &[u8]) -> Result<DriverId, Refusal> {
        let driver = self.driver;
        if let Some(id) = driver.id_in(raw)? {
            return Ok(id);
        }
        if std::ptr::eq(raw, enclosing) {
            return driver.id_or(self.fallback);
        }
        match self.outer_driver.get_or_insert_with(|| driver.id_in(enclosing)) {
            Ok(Some(id)) => Ok(*id),
            Ok(None) => driver.id_or(self.fallback),
            Err(refusal) => Err(Refusal::new(refusal.reason, refusal.detail.clone())),
        }
    }

    /// Checks the object around a point that has no time.
    ///
    /// # Errors
    /// The object has a time, so the time of receipt would be wrong for this point.
    #[cold]
    fn check_outer_time(&mut self, origin: &Origin<'_>) -> Result<(), Refusal> {
        let Some(ts) = &self.schema.ts_name else { return Ok(()) };
        if std::ptr::eq(origin.raw, origin.enclosing) {
            return Ok(());
        }
        let received_at = self.received_at;
        let outer_time = self.outer_time.get_or_insert_with(|| {
            unread_time::unread_time(origin.enclosing, false, &[], received_at)
        });
        match outer_time {
            Some(time) => Err(unread_time::refuse_outer_time(time, ts).of_enclosing()),
            None => Ok(()),
        }
    }

    /// Checks that the object around a point states no zone that contradicts the configured one.
    /// Searches the object once for all of its points. `text`: the point's time.
    ///
    /// # Errors
    /// The object states a zone that contradicts the configured one, and the time has no offset.
    fn check_outer_zone(&mut self, origin: &Origin<'_>, text: &str) -> Result<(), Refusal> {
        let Some(local) = self.schema.local.as_deref() else { return Ok(()) };
        let Some(zone) = &local.zone else { return Ok(()) };
        if std::ptr::eq(origin.raw, origin.enclosing) {
            return Ok(());
        }
        let checked = self
            .outer_zone
            .get_or_insert_with(|| unread_zone::check_zone_of_enclosing(origin.enclosing, zone));
        match checked {
            Err(refusal) if !unread_zone::states_offset(local, text) => {
                Err(Refusal::new(refusal.reason, refusal.detail.clone()).of_enclosing())
            }
            Err(_) | Ok(()) => Ok(()),
        }
    }

    pub(super) fn ignore(&mut self, kind: Ignored) {
        self.out.ignored.push(kind);
    }

    /// Rejects an object if it has an array of fixes that the format does not read. The points that
    /// the format reads are stored nevertheless. `read`: the JSON of the array that the format
    /// reads; empty if the format reads one point.
    #[cold]
    pub(super) fn refuse_other_points(&mut self, json: &[u8], read: &[u8]) {
        if let Some(refusal) = other_points(json, read, self.schema) {
            self.refuse(json, json, refusal);
        }
    }

    /// Rejects a part of the message. `enclosing`: the object or array around it.
    pub(super) fn refuse(&mut self, raw: &[u8], enclosing: &[u8], refusal: Refusal) {
        let driver_id = self.driver_in(raw, enclosing).ok();
        let reject = reject(self.topic, self.received_at, driver_id, (raw, raw.len()), refusal);
        self.out.rejects.push(reject);
    }

    /// Calls `read` with a payload that is an object, or with each element of an array.
    pub(super) fn documents(
        &mut self,
        json: &[u8],
        read: impl Fn(&mut Self, &[u8]) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        match Reader::new(json).peek() {
            b'{' => read(self, json),
            b'[' => self.elements(json, None, read),
            _ => {
                let mut reader = Reader::new(json);
                reader.value().and_then(|_| reader.end()).ok_or_else(|| invalid(json))?;
                refuse(
                    Reason::WrongShape,
                    "the payload is neither an object nor an array of objects",
                )
            }
        }
    }

    /// Reads each element of an array. `enclosing`: the object that contains the array.
    pub(super) fn elements(
        &mut self,
        json: &[u8],
        enclosing: Option<&[u8]>,
        read: impl Fn(&mut Self, &[u8]) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        // If this array is itself an element of an array, it was counted as one point. Count its
        // own elements instead.
        let remaining = self.points_max - self.elements_seen.saturating_sub(1);
        if Reader::new(json).peek() != b'[' {
            let detail = format!("{:.40} is not an array of points", as_text(json));
            return refuse(Reason::WrongShape, detail);
        }
        let (points, count) = elements(json, remaining).ok_or_else(|| invalid(json))?;
        if count == 0 {
            return refuse(Reason::WrongShape, "the array has no points");
        }
        if count > remaining {
            return refuse(
                Reason::TooManyPoints,
                format!("the message has {count} points; the limit is {}", self.points_max),
            );
        }
        self.elements_seen = self.elements_seen.saturating_sub(1) + count;
        (self.outer_time, self.outer_zone, self.outer_driver) = (None, None, None);
        let mut enclosing_refusal = None;
        for raw in points {
            match read(self, raw) {
                // Other points of the array may be valid, so read them all, and then reject the
                // object around the array once.
                Err(refusal) if refusal.is_of_enclosing => {
                    _ = enclosing_refusal.get_or_insert(refusal)
                }
                Err(refusal) => {
                    self.refuse(raw, enclosing.unwrap_or(raw), refusal);
                }
                Ok(()) => {}
            }
        }
        enclosing_refusal
            .map_or(Ok(()), |refusal| Err(Refusal { is_of_enclosing: false, ..refusal }))
    }
}

/// Creates a row of `rejects`. `payload_bytes`: the payload's length as sent.
pub(super) fn reject(
    topic: &[u8],
    received_at: Timestamp,
    driver_id: Option<DriverId>,
    (payload, payload_bytes): (&[u8], usize),
    refusal: Refusal,
) -> Reject {
    let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
    let topic = &topic[..topic.len().min(TOPIC_BYTES_MAX)];
    Reject {
        received_at,
        topic: String::from_utf8_lossy(topic).into_owned(),
        driver_id: driver_id.map_or(String::new(), |id| id.as_str().to_owned()),
        reason: refusal.reason,
        detail: excerpt(&refusal.detail, DETAIL_CHARS_MAX),
        payload: payload.to_vec(),
        payload_bytes: payload_bytes as u64,
        count: 1,
    }
}
