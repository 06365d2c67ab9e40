//! Defines a point, parses it from milepost's own format, and turns it into a [`Position`] by the
//! rules of the input contract.
//!
//! Every format fills a [`Point`]; the rules for points are only here. An invalid optional field
//! becomes unknown; an invalid required field rejects the point.

use super::age::AgeLimits;
use super::field_flags::Unknown;
use super::fix_arrays;
use super::hemisphere;
use super::json::Scalar;
use super::reader::Reader;
use super::reference_system;
use super::refusal::{Refusal, refuse};
use super::schema::Schema;
use super::unit::Quantity;
use super::unread_fix;
use crate::attributes::Attributes;
use crate::number::Number;
use crate::position::{
    Accuracy, Altitude, DriverId, Heading, Latitude, Longitude, OutOfRange, Position, Speed,
    Timestamp,
};
use crate::reject::Reason;

/// An optional field. An invalid value becomes unknown, and the fix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Seq,
    Speed,
    Heading,
    Alt,
    Acc,
}

impl Field {
    pub const ALL: [Self; 5] = [Self::Seq, Self::Speed, Self::Heading, Self::Alt, Self::Acc];

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

    /// Parses a string with a unit after its number, such as `36 km/h`.
    #[cold]
    fn with_unit(self, value: &Scalar<'_>) -> Option<Number> {
        let quantity = match self {
            Self::Seq => return None,
            Self::Speed => Quantity::Speed,
            Self::Heading => Quantity::Angle,
            Self::Alt | Self::Acc => Quantity::Length,
        };
        quantity.parse(value.as_text()?).map(Number::from)
    }
}

/// Counts of missing times, invalid optional fields and dropped attributes in a message's
/// positions.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Omissions {
    /// Positions without a time, which got the time of receipt.
    pub undated: u64,
    /// Invalid optional fields, by [`Field`].
    pub fields: [u64; Field::ALL.len()],
    /// Values that `keep` selects, but that exceed a limit such as the number of attributes.
    pub attributes_cut: u64,
}

/// The values that a position needs besides its point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// The point's own `ts`, or its substitute.
    pub(super) ts: &'a Scalar<'a>,
    pub(super) driver_id: &'a DriverId,
    /// Time of receipt.
    pub(super) received_at: Timestamp,
    pub(super) age: &'a AgeLimits,
    pub(super) schema: &'a Schema,
}

/// A point as sent, in milepost's units, before it is validated. If a key is repeated, its last
/// value counts.
#[derive(Debug, Default)]
pub(super) struct Point<'a> {
    /// The driver id in the payload; if present, it must equal the id from the topic.
    pub(super) driver_id: Scalar<'a>,
    pub(super) lat: Scalar<'a>,
    pub(super) lng: Scalar<'a>,
    /// Another name of the longitude; used if `lng` is missing.
    pub(super) lon: Scalar<'a>,
    pub(super) ts: Scalar<'a>,
    pub(super) seq: Scalar<'a>,
    pub(super) speed: Scalar<'a>,
    pub(super) heading: Scalar<'a>,
    pub(super) alt: Scalar<'a>,
    pub(super) acc: Scalar<'a>,
    /// A key that milepost's own format does not read may name a hemisphere, a unit, a reference
    /// system, a flag of UTC or an array of fixes.
    pub(super) has_key_to_check: bool,
    /// A member that the format does not read may state that there is no fix.
    pub(super) may_have_no_fix: bool,
}

impl<'a> Point<'a> {
    /// Fills an empty point from an object of milepost's own format. Works in place, because a
    /// point is large and this method runs for every message. Returns `None` if the JSON is invalid
    /// or not an object.
    pub(super) fn fill(&mut self, json: &mut Reader<'a>) -> Option<()> {
        json.members(|json| {
            if let Some(field) = json.known_key(|word, after| self.field_of_word(word, after)) {
                *field = json.value()?;
                return Some(());
            }
            *json = self.fill_by_key(*json)?;
            Some(())
        })
    }

    /// Reads a member whose key [`field_of_word`](Self::field_of_word) does not know. Takes a copy
    /// of the cursor and returns it advanced past the member, so that `fill` keeps its own cursor
    /// in registers.
    #[inline(never)]
    fn fill_by_key(&mut self, mut json: Reader<'a>) -> Option<Reader<'a>> {
        let key = json.key()?;
        let value = json.value()?;
        match self.field(&key) {
            Some(field) => *field = value,
            None => {
                self.has_key_to_check |= value.is_container()
                    && (hemisphere::may_list_sides(&key) || fix_arrays::is_name_of_fixes(&key))
                    || hemisphere::is_utc_flag(&key) && value.is_unset();
                self.may_have_no_fix |= unread_fix::may_deny_fix(&key, &value);
            }
        }
        Some(json)
    }

    /// Like [`field`](Self::field), but takes the eight bytes from the key's opening quote on, as
    /// the integer `word`, and the bytes `after` them. Also returns the length of key, quotes and
    /// colon in bytes.
    #[inline(always)]
    fn field_of_word(&mut self, word: u64, after: &[u8]) -> Option<(&mut Scalar<'a>, usize)> {
        const LAT: u64 = word_of(b"\"lat\":");
        const LNG: u64 = word_of(b"\"lng\":");
        const LON: u64 = word_of(b"\"lon\":");
        const SEQ: u64 = word_of(b"\"seq\":");
        const ALT: u64 = word_of(b"\"alt\":");
        const ACC: u64 = word_of(b"\"acc\":");
        const TS: u64 = word_of(b"\"ts\":");
        const SPEED: u64 = word_of(b"\"speed\":");
        const HEADING: u64 = word_of(b"\"heading");
        Some(match word & (u64::MAX >> 16) {
            LAT => (&mut self.lat, 6),
            LNG => (&mut self.lng, 6),
            LON => (&mut self.lon, 6),
            SEQ => (&mut self.seq, 6),
            ALT => (&mut self.alt, 6),
            ACC => (&mut self.acc, 6),
            six_bytes if six_bytes & (u64::MAX >> 24) == TS => (&mut self.ts, 5),
            _ if word == SPEED => (&mut self.speed, 8),
            _ if word == HEADING && after.starts_with(b"\":") => (&mut self.heading, 10),
            _ => return None,
        })
    }

    /// Returns the field of a key; `None` if the key is not one of milepost's format.
    fn field(&mut self, key: &[u8]) -> Option<&mut Scalar<'a>> {
        Some(match key {
            b"driver_id" => &mut self.driver_id,
            b"lat" => &mut self.lat,
            b"lng" => &mut self.lng,
            b"lon" => &mut self.lon,
            b"ts" => &mut self.ts,
            b"seq" => &mut self.seq,
            b"speed" => &mut self.speed,
            b"heading" => &mut self.heading,
            b"alt" => &mut self.alt,
            b"acc" => &mut self.acc,
            _ => {
                self.has_key_to_check |= hemisphere::may_be_hemisphere_or_unit(key)
                    || reference_system::may_be_name(key);
                return None;
            }
        })
    }
}

/// Returns up to eight bytes as a little-endian integer.
const fn word_of(bytes: &[u8]) -> u64 {
    let (mut word, mut index) = (0, 0);
    while index < bytes.len() {
        word |= (bytes[index] as u64) << (8 * index);
        index += 1;
    }
    word
}

/// The required fields of a point, and its time, validated.
pub(super) struct Required {
    lat: Latitude,
    lng: Longitude,
    /// `None` if the point has no time.
    pub(super) ts: Option<Timestamp>,
}

impl Required {
    /// Returns whether both coordinates are degrees without a fraction.
    #[inline]
    pub(super) const fn is_whole_degrees(&self) -> bool {
        const DEGREE_E7: i32 = 10_000_000;
        self.lat.e7() % DEGREE_E7 == 0 && self.lng.e7() % DEGREE_E7 == 0
    }
}

impl Point<'_> {
    /// Validates the fields without which a point is rejected, and its time.
    #[inline]
    pub(super) fn required(&self, context: &Context<'_>) -> Result<Required, Refusal> {
        let Context { ts, driver_id, received_at, age, schema } = *context;
        if !self.driver_id.is_missing() {
            self.check_driver(driver_id)?;
        }
        let (lat, lng) = self.coordinates(&schema.lat_lng_names)?;
        let ts = age.timestamp(ts, schema, received_at)?;
        Ok(Required { lat, lng, ts })
    }

    /// Returns the position. Counts a missing time and invalid optional fields in `omitted`.
    #[inline]
    pub(super) fn position(
        &self,
        context: &Context<'_>,
        Required { lat, lng, ts }: Required,
        attributes: Attributes,
        omitted: &mut Omissions,
    ) -> Position {
        let Context { driver_id, received_at, .. } = *context;
        omitted.undated += u64::from(ts.is_none());
        let seq = omitted.seq(&self.seq);
        let speed = omitted.number(Field::Speed, &self.speed, Speed::new);
        let heading = omitted.number(Field::Heading, &self.heading, Heading::new);
        let alt = omitted.number(Field::Alt, &self.alt, Altitude::new);
        let acc = omitted.number(Field::Acc, &self.acc, Accuracy::new);
        Position {
            driver_id: *driver_id,
            ts: ts.unwrap_or(received_at),
            seq,
            lat,
            lng,
            speed: speed.unwrap_or(Speed::UNKNOWN),
            heading: heading.unwrap_or(Heading::UNKNOWN),
            alt: alt.unwrap_or(Altitude::UNKNOWN),
            acc: acc.unwrap_or(Accuracy::UNKNOWN),
            received_at,
            attributes,
        }
    }

    /// Checks that the payload's `driver_id` equals the topic's.
    #[inline(never)]
    fn check_driver(&self, driver_id: &DriverId) -> Result<(), Refusal> {
        let sent = &self.driver_id;
        if sent.as_text() == Some(driver_id.as_str()) {
            return Ok(());
        }
        refuse(
            Reason::DriverMismatch,
            format!(
                "the payload's driver_id is {sent}, but the topic's is \"{}\"",
                driver_id.as_str()
            ),
        )
    }

    /// Validates the coordinates. The strings are the format's names of `lat` and `lng`, for
    /// errors.
    fn coordinates(&self, [lat, lng]: &[String; 2]) -> Result<(Latitude, Longitude), Refusal> {
        let lat_degrees = required_number(lat, &self.lat)?;
        let lng_degrees =
            required_number(lng, if self.lng.is_missing() { &self.lon } else { &self.lng })?;
        if !self.lon.is_missing()
            && !self.lng.is_missing()
            && let Some(lon) = self.lon.as_number()
        {
            check_same_longitude(lng_degrees, lon)?;
        }
        let lat = Latitude::new(lat_degrees).map_err(move |OutOfRange| {
            Refusal::new(Reason::LatRange, range_error("lat", lat_degrees, 90, lng_degrees))
        })?;
        let lng = Longitude::new(lng_degrees).map_err(move |OutOfRange| {
            Refusal::new(Reason::LngRange, range_error("lng", lng_degrees, 180, lat_degrees))
        })?;
        if lat.e7() == 0
            && lng.e7() == 0
            && lat_degrees.as_f64() == 0.0
            && lng_degrees.as_f64() == 0.0
        {
            return refuse(Reason::NullIsland, "lat and lng are both 0: no fix");
        }
        Ok((lat, lng))
    }
}

/// Checks the two names of the longitude, if a point has both.
///
/// # Errors
/// The two numbers are more than 0.0001 degrees (11 m) apart.
#[cold]
fn check_same_longitude(lng: Number, lon: Number) -> Result<(), Refusal> {
    let (lng, lon) = (lng.as_f64(), lon.as_f64());
    if (lng - lon).abs() <= 1e-4 {
        return Ok(());
    }
    refuse(Reason::WrongType, format!("lng is {lng}, and lon is {lon}: send only one of them"))
}

/// Creates the error for a coordinate out of range. `other`: the other coordinate.
#[cold]
fn range_error(name: &str, degrees: Number, limit: i32, other: Number) -> String {
    const ARE_METRES: &str =
        "; are these metres of a projection? Convert them to WGS 84, EPSG:4326";
    let (degrees, other) = (degrees.as_f64(), other.as_f64());
    let (max, other_max) = (f64::from(limit), f64::from(270 - limit));
    let is_swapped = name == "lat" && degrees.abs() <= 180.0 && other.abs() <= 90.0;
    let is_large = degrees.abs() > 2e4;
    // Metres of a projection are below half of the earth's circumference, 20,000 km.
    let may_be_metres = is_large && (2e4..2.1e7).contains(&other.abs()) && degrees.abs() < 2.1e7;
    let fits = |decimals: &i32| {
        let scale = 10_f64.powi(*decimals);
        degrees.abs() / scale <= max && other.abs() / scale <= other_max
    };
    let is_whole = degrees.fract() == 0.0 && other.fract() == 0.0;
    let units: Vec<String> = (4..=7)
        .filter(|decimals| is_large && is_whole && fits(decimals))
        .map(|decimals| format!("1e-{decimals} deg"))
        .collect();
    let hint = match &units[..] {
        _ if is_swapped => "; are lat and lng swapped?".to_owned(),
        [unit] if !may_be_metres => format!(
            "; is it an integer in units such as {unit}, or in Garmin's semicircles? Set lat_unit, \
             or give --unit lat='{unit}'"
        ),
        [_, ..] => {
            let (metres, or) = if may_be_metres { (ARE_METRES, "or ") } else { ("", "") };
            format!(
                "{metres}; {or}is it an integer in units of {}? Set lat_unit, or give --unit lat=",
                units.join(" or ")
            )
        }
        [] if may_be_metres => ARE_METRES.to_owned(),
        [] if name == "lng" && (180.0..=360.0).contains(&degrees) => {
            "; does lng count from 0 to 360? Subtract 360 from values above 180".to_owned()
        }
        [] if name == "lat" && may_have_minutes(degrees) && may_have_minutes(other) => {
            "; are these degrees and minutes? Set lat_unit, or give --unit lat=ddmm.mmmm".to_owned()
        }
        [] => String::new(),
    };
    format!("{name} {degrees} is outside -{limit}..{limit}{hint}")
}

/// Returns whether a number may be `ddmm.mmmm`.
fn may_have_minutes(number: f64) -> bool {
    number.abs() < 18_060.0 && number.abs() % 100.0 < 60.0
}

/// Returns the number of a required field.
///
/// # Errors
/// The field is missing or not a number.
#[inline(always)]
fn required_number(name: &str, value: &Scalar<'_>) -> Result<Number, Refusal> {
    value.as_number().ok_or_else(|| not_a_number(name, value))
}

#[cold]
fn not_a_number(name: &str, value: &Scalar<'_>) -> Refusal {
    match value {
        Scalar::Missing => Refusal::new(Reason::MissingField, format!("{name} is missing")),
        Scalar::Integer(_) | Scalar::Number(_) | Scalar::Text(_) | Scalar::Other(_) => {
            let hint = value.as_text().map_or("", notation_hint);
            Refusal::new(Reason::WrongType, format!("{name} is {value}, not a number{hint}"))
        }
    }
}

const DEGREES_HINT: &str = "; write degrees such as -33.5, 33.5S or 33°30'S";

/// Returns advice on how to write degrees, for a text that cannot be parsed; an empty string if
/// there is no advice.
fn notation_hint(text: &str) -> &'static str {
    const DASHES: [char; 9] = ['−', '–', '—', '‐', '‑', '⁃', '﹣', '－', '\u{ad}'];
    let text = text.trim();
    let is_number = |part: &str| part.ends_with(|c: char| c.is_ascii_digit() || c == '°');
    if text.starts_with(DASHES) {
        "; write a plain minus"
    } else if text.starts_with(['\'', '"', '=']) {
        "; save the file without the quotes"
    } else if text.strip_suffix(['o', 'O']).is_some_and(|rest| is_number(rest.trim_end())) {
        "; O is east in German and west in French: write E or W"
    } else if text.parse::<f64>().is_ok_and(f64::is_finite) {
        "; send it without quotes"
    } else if text.starts_with('(') || text.ends_with('-') {
        "; write a minus before the number"
    } else if text.contains(|c: char| c.is_numeric() && !c.is_ascii_digit()) {
        "; write it with the digits 0 to 9 and a decimal point"
    } else if !text.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c)) {
        let has_digit = text.contains(|c: char| c.is_ascii_digit());
        if has_digit { DEGREES_HINT } else { "" }
    } else if text.contains([',', '٫']) {
        "; write a decimal point, and no other separator in this number or those beside it"
    } else if text.contains(['\'', '"', ':', '′', '″']) {
        "; write degrees such as 52.5, 52°30' or 52°30'N"
    } else if text.starts_with("0x") {
        "; write a decimal number"
    } else {
        DEGREES_HINT
    }
}

impl Omissions {
    pub fn add(&mut self, other: Self) {
        self.undated += other.undated;
        for (total, count) in self.fields.iter_mut().zip(other.fields) {
            *total += count;
        }
        self.attributes_cut += other.attributes_cut;
    }

    /// Returns the value of an optional field; `None` if it is missing or invalid. Counts an
    /// invalid value.
    fn number<T>(
        &mut self,
        field: Field,
        value: &Scalar<'_>,
        new: impl FnOnce(Number) -> Result<T, OutOfRange>,
    ) -> Option<T> {
        if value.is_missing() {
            return None;
        }
        let number = value.as_number().or_else(|| field.with_unit(value)).and_then(|n| new(n).ok());
        if number.is_none() {
            self.fields[field as usize] += 1;
        }
        number
    }

    /// Sets the fields that are marked in `unknown` to "unknown". Counts those that had a value.
    #[cold]
    pub(super) fn clear(&mut self, position: &mut Position, unknown: Unknown) {
        let [speed, heading, alt, acc] = unknown;
        let mut count = |field: Field, is_cleared: bool| {
            self.fields[field as usize] += u64::from(is_cleared);
        };
        if speed {
            let before = std::mem::replace(&mut position.speed, Speed::UNKNOWN);
            count(Field::Speed, before != Speed::UNKNOWN);
        }
        if heading {
            let before = std::mem::replace(&mut position.heading, Heading::UNKNOWN);
            count(Field::Heading, before != Heading::UNKNOWN);
        }
        if alt {
            let before = std::mem::replace(&mut position.alt, Altitude::UNKNOWN);
            count(Field::Alt, before != Altitude::UNKNOWN);
        }
        if acc {
            let before = std::mem::replace(&mut position.acc, Accuracy::UNKNOWN);
            count(Field::Acc, before != Accuracy::UNKNOWN);
        }
    }

    /// Returns the sequence number; 0 if it is missing or invalid. An invalid one is counted in
    /// `fields`.
    fn seq(&mut self, value: &Scalar<'_>) -> u32 {
        let seq = match value {
            Scalar::Missing => Some(0),
            Scalar::Integer(number) => u32::try_from(*number).ok(),
            Scalar::Number(_) | Scalar::Text(_) | Scalar::Other(_) => None,
        };
        if seq.is_none() {
            self.fields[Field::Seq as usize] += 1;
        }
        seq.unwrap_or(0)
    }
}
