//! Topic and payload in, positions and rejects out: the input contract, in one place.
//!
//! Guarantee: every byte string gives at least one position, one reject, or one message that is counted as ignored, and
//! never a panic. A broken optional field costs itself, a broken point costs itself, a broken message costs itself. What
//! is refused, and in which order, is the list of [`Reason`](super::reject::Reason)s.
//!
//! A [`Source`] says what format a topic's messages have. A format is one file of `formats/`: it knows where values are
//! in the payload and which units they have, and hands over points. The rules for a point are in `point.rs`, for all.

mod decoder;
mod driver;
mod extract;
pub(crate) mod formats;
mod ignored;
mod json;
mod keep;
mod message;
mod point;
mod points;
mod presence;
mod reading;
mod refusal;
mod source;
mod topic;
mod unit;

pub use self::decoder::{Decoder, Limits};
pub(crate) use self::driver::{Driver, Template};
pub(crate) use self::extract::Pointer;
pub use self::ignored::Ignored;
pub(crate) use self::keep::{Keep, NAME_BYTES_MAX};
pub use self::message::{Decoded, Message};
pub(crate) use self::point::rfc3339;
pub use self::point::{Field, Lacking};
pub use self::source::Source;
pub(crate) use self::topic::{PLUSES_MAX, overlap};
pub(crate) use self::unit::{LengthUnit, SpeedUnit, TimeUnit};
