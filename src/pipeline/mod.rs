//! The way of a position: bytes of a message → a validated [`position`] or a [`reject`] → a [`batch`] of rows → the bytes of an insert
//! ([`encode`]).
//!
//! Pure: no clock, no task, no I/O.

pub mod attributes;
pub mod batch;
pub mod decode;
pub mod encode;
pub mod erased;
mod number;
pub mod position;
pub mod reject;
pub(crate) mod row_binary;
pub mod screened;
