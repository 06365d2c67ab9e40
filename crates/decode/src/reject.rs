//! Defines a row of the `rejects` table: the rejected point or message, and the reason.

use super::position::Timestamp;
use super::row_binary::{DRIVER_ID, Kind, Table, U64, put_text};
pub use crate::message::PAYLOAD_BYTES_MAX;

/// Maximum stored bytes of a rejected message's topic.
pub const TOPIC_BYTES_MAX: usize = 1024;
/// Maximum characters of `detail`.
pub const DETAIL_CHARS_MAX: usize = 200;

/// The reason for a reject, in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The payload exceeds a limit, as sent or unpacked, or its packet exceeds
    /// `mqtt.max_packet_bytes`.
    TooLarge,
    /// The topic matches no source, or its driver id breaks the rule for ids.
    BadTopic,
    /// The payload has no bytes.
    Empty,
    /// The payload is neither UTF-8 nor readable gzip, zstd or CBOR.
    InvalidUtf8,
    /// The payload is not valid JSON.
    InvalidJson,
    /// The payload is neither an object nor a non-empty array of objects.
    WrongShape,
    /// The format does not define a message of this kind, or cannot read the message.
    UnknownFormatKind,
    /// NMEA: a line is not a sentence, or has an unreadable field.
    InvalidSentence,
    /// NMEA: the checksum is missing or wrong.
    BadChecksum,
    /// The message has more than 10,000 points.
    TooManyPoints,
    /// The payload must name the driver, but names none, or an id that breaks the rule for ids.
    BadDriver,
    /// The payload names a driver other than the topic's.
    DriverMismatch,
    /// `lat` or `lng` is absent.
    MissingField,
    /// `lat` or `lng` is not a number of degrees or contradicts a hemisphere, or a flag beside them
    /// states that there is no fix.
    WrongType,
    /// `lat` is outside −90..=90.
    LatRange,
    /// `lng` is outside −180..=180.
    LngRange,
    /// `lat` and `lng` are exactly 0: a receiver without a fix.
    NullIsland,
    /// `ts` cannot be read as a time, or the time has a name that the format does not read.
    BadTs,
    /// `ts` is older than `decode.fix_age_max`.
    TooOld,
    /// `ts` is later than the receipt by more than `decode.fix_future_max`.
    TooNew,
}

impl Reason {
    /// Every reason, in the order of the checks.
    pub const ALL: [Self; 20] = [
        Self::TooLarge,
        Self::BadTopic,
        Self::Empty,
        Self::InvalidUtf8,
        Self::InvalidJson,
        Self::WrongShape,
        Self::UnknownFormatKind,
        Self::InvalidSentence,
        Self::BadChecksum,
        Self::TooManyPoints,
        Self::BadDriver,
        Self::DriverMismatch,
        Self::MissingField,
        Self::WrongType,
        Self::LatRange,
        Self::LngRange,
        Self::NullIsland,
        Self::BadTs,
        Self::TooOld,
        Self::TooNew,
    ];

    /// Returns the name in the `rejects` table and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::BadTopic => "bad_topic",
            Self::Empty => "empty",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::InvalidJson => "invalid_json",
            Self::WrongShape => "wrong_shape",
            Self::UnknownFormatKind => "unknown_format_kind",
            Self::InvalidSentence => "invalid_sentence",
            Self::BadChecksum => "bad_checksum",
            Self::TooManyPoints => "too_many_points",
            Self::BadDriver => "bad_driver",
            Self::DriverMismatch => "driver_mismatch",
            Self::MissingField => "missing_field",
            Self::WrongType => "wrong_type",
            Self::LatRange => "lat_range",
            Self::LngRange => "lng_range",
            Self::NullIsland => "null_island",
            Self::BadTs => "bad_ts",
            Self::TooOld => "too_old",
            Self::TooNew => "too_new",
        }
    }
}

/// One row of the `rejects` table: a rejected point or message. Above the flood limit, one row
/// stands for many rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Arrival of the message at milepost.
    pub received_at: Timestamp,
    /// The message's topic: at most its first 1,024 bytes.
    pub topic: String,
    /// The driver, if the topic or the payload named one.
    pub driver_id: String,
    pub reason: Reason,
    pub detail: String,
    /// The invalid point or the whole message: at most the first 64 KiB.
    pub payload: Vec<u8>,
    /// Length of the payload in bytes before truncation.
    pub payload_bytes: u64,
    /// Number of rejects that this row represents.
    pub count: u64,
}

/// The ClickHouse table whose columns hold the fields above.
pub static TABLE: Table = Table {
    name: "rejects",
    columns: &[
        ("received_at", Kind::Time),
        ("topic", Kind::Text),
        (DRIVER_ID, Kind::Text),
        ("reason", Kind::Text),
        ("detail", Kind::Text),
        ("payload", Kind::Text),
        ("payload_bytes", U64),
        ("count", U64),
    ],
};

impl Reject {
    /// Appends the columns of [`TABLE`], in that order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.received_at.unix_ms().to_le_bytes());
        put_text(self.topic.as_bytes(), out);
        put_text(self.driver_id.as_bytes(), out);
        put_text(self.reason.name().as_bytes(), out);
        put_text(self.detail.as_bytes(), out);
        put_text(&self.payload, out);
        out.extend_from_slice(&self.payload_bytes.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
    }
}
