//! Defines a validated position, scaled to integers as it is stored.
//!
//! Every field is a type that holds only valid values, so no later step validates again. Units are
//! those of the table's columns; the largest value of an optional column's type means "unknown".

use std::fmt;

use super::attributes::Attributes;
use super::number::Number;
use super::row_binary::{DRIVER_ID, I32, Kind, Table, U16, U32, put_count, put_text};

/// Longest driver id in bytes.
pub const DRIVER_ID_BYTES_MAX: usize = 64;

/// One fix of one driver, ready to be encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Driver id, from the topic or the payload as the source defines.
    pub driver_id: DriverId,
    /// Time of the fix.
    pub ts: Timestamp,
    /// The device's sequence number; 0 if it sends none.
    pub seq: u32,
    pub lat: Latitude,
    pub lng: Longitude,
    pub speed: Speed,
    pub heading: Heading,
    pub alt: Altitude,
    pub acc: Accuracy,
    /// Arrival of the message at milepost.
    pub received_at: Timestamp,
    pub attributes: Attributes,
}

/// The ClickHouse table whose columns hold the fields above.
pub static TABLE: Table = Table {
    name: "positions",
    columns: &[
        (DRIVER_ID, Kind::Text),
        ("ts", Kind::Time),
        ("seq", U32),
        ("lat_e7", I32),
        ("lng_e7", I32),
        ("speed_cms", U16),
        ("heading_cdeg", U16),
        ("alt_dm", I32),
        ("acc_dm", U16),
        ("received_at", Kind::Time),
        ("attributes", Kind::Texts),
    ],
};

/// Bytes of the columns that have a fixed length.
const NUMBERS_BYTES: usize = TABLE.fixed_bytes();

impl Position {
    /// Appends the columns of [`TABLE`], in that order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_text(self.driver_id.as_bytes(), out);
        // Append all numbers at once, so that the vector grows only once.
        let mut numbers = [0; NUMBERS_BYTES];
        let mut unwritten = &mut numbers[..];
        let mut put = |bytes: &[u8]| {
            let (field, after) = std::mem::take(&mut unwritten).split_at_mut(bytes.len());
            field.copy_from_slice(bytes);
            unwritten = after;
        };
        put(&self.ts.unix_ms().to_le_bytes());
        put(&self.seq.to_le_bytes());
        put(&self.lat.e7().to_le_bytes());
        put(&self.lng.e7().to_le_bytes());
        put(&self.speed.cms().to_le_bytes());
        put(&self.heading.cdeg().to_le_bytes());
        put(&self.alt.dm().to_le_bytes());
        put(&self.acc.dm().to_le_bytes());
        put(&self.received_at.unix_ms().to_le_bytes());
        assert!(unwritten.is_empty());
        out.extend_from_slice(&numbers);
        put_count(self.attributes.len(), out);
        out.extend_from_slice(self.attributes.encoded());
    }
}

/// A value outside the range of its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("out of range")]
pub struct OutOfRange;

/// The rule for driver ids, as error messages state it.
pub const DRIVER_ID_RULE: &str = "a driver id is 1-64 bytes of A-Z a-z 0-9 . _ : -";

static IS_ALLOWED_IN_ID: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0_u8);
    while byte < 128 {
        table[byte as usize] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
        byte += 1;
    }
    table
};

/// A driver's id: 1–64 bytes of `A–Z a–z 0–9 . _ : -`. Stored inline, so that a position needs no
/// allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverId {
    /// Padded with zeros, which sort before every byte of an id.
    bytes: [u8; DRIVER_ID_BYTES_MAX],
    length: u8,
}

impl fmt::Debug for DriverId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl DriverId {
    /// Parses an id.
    ///
    /// # Errors
    /// The id is empty, is longer than 64 bytes, or has a byte outside `A–Z a–z 0–9 . _ : -`.
    pub fn new(id: impl AsRef<[u8]>) -> Result<Self, OutOfRange> {
        let id = id.as_ref();
        // Check all bytes even after an invalid one: that is cheaper than a branch for each byte.
        let is_allowed =
            id.iter().fold(true, |all, byte| all & IS_ALLOWED_IN_ID[usize::from(*byte)]);
        if id.is_empty() || !is_allowed {
            return Err(OutOfRange);
        }
        Self::of_allowed(id)
    }

    /// Returns all bytes at the start of `text` that an id may contain, as an id, and the bytes
    /// after them. `None`: there is no such byte, or there are more than 64.
    #[inline]
    pub(crate) fn split_off(text: &[u8]) -> Option<(Self, &[u8])> {
        let ends_id = |byte: &u8| !IS_ALLOWED_IN_ID[usize::from(*byte)];
        let (id, rest) = text.split_at(text.iter().position(ends_id).unwrap_or(text.len()));
        if id.is_empty() { None } else { Some((Self::of_allowed(id).ok()?, rest)) }
    }

    /// Creates an id from bytes that are all allowed in an id. Fails if there are more than 64.
    #[inline]
    fn of_allowed(id: &[u8]) -> Result<Self, OutOfRange> {
        let mut bytes = [0; DRIVER_ID_BYTES_MAX];
        bytes.get_mut(..id.len()).ok_or(OutOfRange)?.copy_from_slice(id);
        Ok(Self { bytes, length: u8::try_from(id.len()).map_err(|_| OutOfRange)? })
    }

    /// Parses an id that an operator gives.
    ///
    /// # Errors
    /// The id is invalid; the error states the rule for ids.
    pub fn named(id: &str) -> Result<Self, String> {
        Self::new(id).map_err(|OutOfRange| DRIVER_ID_RULE.to_owned())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("ASCII")
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    #[must_use]
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self(ms)
    }

    #[must_use]
    pub const fn unix_ms(self) -> i64 {
        self.0
    }
}

/// WGS84 degrees north, −90..=90, kept in units of 1e-7 degrees (about a centimetre).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Latitude(i32);

/// WGS84 degrees east, −180..=180, kept in units of 1e-7 degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Longitude(i32);

/// Degrees clockwise from north, 0..360 (360 is 0), kept in hundredths of a degree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heading(u16);

impl Latitude {
    /// # Errors
    /// The latitude is outside −90..=90 degrees.
    pub fn new(degrees: impl Into<Number>) -> Result<Self, OutOfRange> {
        degrees.into().in_units(7, -900_000_000..=900_000_000).map(Self).ok_or(OutOfRange)
    }

    /// Returns the latitude in units of 1e-7 degrees.
    #[must_use]
    pub const fn e7(self) -> i32 {
        self.0
    }
}

impl Longitude {
    /// # Errors
    /// The longitude is outside −180..=180 degrees.
    pub fn new(degrees: impl Into<Number>) -> Result<Self, OutOfRange> {
        degrees.into().in_units(7, -1_800_000_000..=1_800_000_000).map(Self).ok_or(OutOfRange)
    }

    /// Returns the longitude in units of 1e-7 degrees.
    #[must_use]
    pub const fn e7(self) -> i32 {
        self.0
    }
}

impl Heading {
    /// The value of a heading that is missing or out of range.
    pub const UNKNOWN: Self = Self(u16::MAX);

    /// # Errors
    /// The heading is outside 0..=360 degrees.
    pub fn new(degrees: impl Into<Number>) -> Result<Self, OutOfRange> {
        let units: u16 = degrees.into().in_units(2, 0..=36_000).ok_or(OutOfRange)?;
        Ok(Self(units % 36_000))
    }

    /// Returns the heading in hundredths of a degree; `u16::MAX` is unknown.
    #[must_use]
    pub const fn cdeg(self) -> u16 {
        self.0
    }
}

/// Defines the type of an optional number, from its range in stored units and the decimals of these
/// units. The largest value of the integer type means "unknown", as in the table.
macro_rules! optional_number {
    ($(#[$doc:meta])* $name:ident, $units:expr, $decimals:expr, $read:ident -> $integer:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name($integer);

        impl $name {
            /// The value for a missing number or one out of range.
            pub const UNKNOWN: Self = Self(<$integer>::MAX);

            /// # Errors
            /// The number is outside the range of its field.
            pub fn new(value: impl Into<Number>) -> Result<Self, OutOfRange> {
                value.into().in_units($decimals, $units).map(Self).ok_or(OutOfRange)
            }

            /// Returns the number in stored units; the integer's largest value is unknown.
            #[must_use]
            pub const fn $read(self) -> $integer {
                self.0
            }
        }
    };
}

optional_number!(
    /// Ground speed, 0..=200 m/s, kept in cm/s.
    Speed, 0..=20_000, 2, cms -> u16
);
optional_number!(
    /// Metres above sea level or the ellipsoid, as the source reports it; −1,000..=100,000, kept in
    /// decimetres.
    Altitude, -10_000..=1_000_000, 1, dm -> i32
);
optional_number!(
    /// Horizontal accuracy radius, 0..=6,553.4 m, kept in decimetres.
    Accuracy, 0..=65_534, 1, dm -> u16
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_scaled_and_their_ranges_are_inclusive() {
        assert_eq!(Latitude::new(25.761_712_3).map(Latitude::e7), Ok(257_617_123));
        assert_eq!(Latitude::new(-90.0).map(Latitude::e7), Ok(-900_000_000));
        assert_eq!(Longitude::new(180.0).map(Longitude::e7), Ok(1_800_000_000));
        assert_eq!(Speed::new(200.0).map(Speed::cms), Ok(20_000));
        assert_eq!(Heading::new(360.0).map(Heading::cdeg), Ok(0));
        assert_eq!(Heading::new(359.999).map(Heading::cdeg), Ok(0));
        assert_eq!(Altitude::new(-1_000.0).map(Altitude::dm), Ok(-10_000));
        assert_eq!(Accuracy::new(6_553.4).map(Accuracy::dm), Ok(65_534));
    }

    #[test]
    fn values_out_of_range_are_refused_and_never_read_as_unknown() {
        assert!(Latitude::new(90.000_000_1).is_err());
        assert!(Latitude::new(f64::NAN).is_err());
        assert!(Longitude::new(-180.1).is_err());
        assert!(Speed::new(-0.1).is_err());
        assert!(Heading::new(360.1).is_err());
        assert!(Altitude::new(f64::INFINITY).is_err());
        assert!(Accuracy::new(6_553.5).is_err());
    }

    #[test]
    fn driver_id_has_1_to_64_allowed_bytes() {
        assert_eq!(
            DriverId::new("d-7_a.b:C").map(|id| id.as_str().to_owned()),
            Ok("d-7_a.b:C".to_owned())
        );
        assert!(DriverId::new("x".repeat(64)).is_ok());
        for bad in ["", "a b", "a/b", "ü", "a\n", &"x".repeat(65)] {
            assert!(DriverId::new(bad).is_err(), "{bad:?}");
        }
    }
}
