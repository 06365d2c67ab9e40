//! Topic and payload in, positions and rejects out: the input contract, in one place.
//!
//! Guarantee: every byte string becomes at least one position, reject or ignored message, and never a panic. An invalid
//! optional field becomes unknown; an invalid point does not reject its neighbours. The reasons for a reject, in the order of the
//! checks, are the list of [`Reason`](super::reject::Reason)s.
//!
//! `unpack.rs` turns compressed payloads and CBOR into text. A [`Source`] has the format of a topic's messages. A format (`formats/`) extracts points with their units. The rules for a
//! point are in `point.rs`, for all formats.

mod age;
mod decoded;
mod decoder;
mod driver;
mod extract;
pub(crate) mod formats;
mod ignored;
mod json;
mod keep;
mod names;
mod plain;
mod point;
mod points;
mod presence;
mod reading;
mod refusal;
mod source;
mod time;
mod topic;
mod unit;
mod unpack;

pub use self::decoded::Decoded;
pub use self::decoder::{Decoder, Limits};
pub(crate) use self::driver::{Driver, OtherBytes, Template};
pub(crate) use self::extract::Pointer;
pub use self::ignored::Ignored;
pub(crate) use self::keep::Keep;
pub use self::point::{Field, Lacking};
pub use self::source::Source;
pub(crate) use self::time::rfc3339;
pub(crate) use self::time::{Local, Zone};
pub(crate) use self::topic::{PLUSES_MAX, overlap};
pub use self::unit::SpeedUnit;
pub(crate) use self::unit::{Quantity, TimeUnit};
