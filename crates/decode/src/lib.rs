//! Decodes the bytes of a message into positions and rejects.
//!
//! ```text
//! topic   ─▶ source (driver id, format, kept fields)
//!              │
//! payload ─▶ unpack ─▶ format ─▶ point (the rules) ─▶ Position
//!            gzip, zstd, CBOR        │
//!                                    └─▶ Reject (a reason, the bytes) or Ignored (a reason)
//! ```
//!
//! Guarantee: every byte string becomes at least one position, reject or ignored message, and
//! decoding never panics. An invalid optional field becomes unknown; an invalid point does not
//! reject its neighbours. [`Reason`](reject::Reason) lists the reasons for a reject in the order of
//! the checks.
//!
//! The crate never guesses the unit of a speed, length or angle from the size of its value, reads
//! no clock, and does no I/O. `point.rs` has the rules for the points of all formats;
//! `formats/mod.rs` lists the formats, and `crates/config/src/sources.rs` maps their names.

mod age;
mod announced;
pub mod attributes;
mod date_words;
mod decoded;
mod decoder;
mod distance;
mod driver;
mod epoch;
mod exponent;
mod extract;
mod field_flags;
mod field_names;
mod fix_arrays;
pub mod formats;
mod hemisphere;
mod ignored;
mod json;
mod keep;
mod measured;
mod message;
mod names;
mod notations;
mod number;
mod other_points;
mod patterns;
mod point;
mod points;
pub mod position;
mod presence;
mod reader;
mod reference_system;
mod refusal;
pub mod reject;
mod repair;
pub mod row_binary;
mod schema;
mod sides;
mod source;
mod spelled_unit;
mod time;
mod topic;
mod translations;
mod unit;
mod unit_names;
mod unit_words;
mod unpack;
mod unread_age;
mod unread_announced;
mod unread_fix;
mod unread_time;
mod unread_unit;
mod unread_zone;

pub use self::decoded::Decoded;
pub use self::decoder::{Decoder, Limits};
pub use self::distance::metres;
pub use self::driver::{Driver, OtherBytes, Template};
pub use self::extract::Pointer;
pub use self::field_names::suggested_field;
pub use self::hemisphere::hemisphere;
pub use self::ignored::Ignored;
pub use self::json::is_unset;
pub use self::keep::Keep;
pub use self::message::{Message, PAYLOAD_BYTES_MAX};
pub use self::notations::EAST_ASIAN_MERIDIEMS;
pub use self::point::{Field, Omissions};
pub use self::reference_system::names_reference_system;
pub use self::sides::SIDE_WORDS;
pub use self::source::Source;
pub use self::time::rfc3339;
pub use self::time::{Local, PatternZone, Zone};
pub use self::topic::{PLUSES_MAX, overlap};
pub use self::translations::{field_in_other_language, is_date_in_other_language};
pub use self::unit::SpeedUnit;
pub use self::unit::{Quantity, TimeUnit};
pub use self::unit_words::names_unit;
pub use self::unread_zone::{is_zone_in_other_language, lacks_zone};
