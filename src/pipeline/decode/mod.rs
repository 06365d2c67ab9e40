//! Topic and payload in, positions and rejects out: the input contract, in one place.
//!
//! Guarantee: every byte string gives at least one position or one reject, and never a panic. A broken optional field
//! costs itself, a broken point costs itself, a broken message costs itself. What is refused, and in which order, is
//! the list of [`Reason`]s.

mod decoder;
mod json;
mod message;
mod point;
mod refusal;
mod topic;

pub use self::decoder::{Decoder, Limits};
pub use self::message::{Decoded, Message};
pub use self::point::{Field, Lacking};
