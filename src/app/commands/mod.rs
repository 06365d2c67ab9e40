//! What milepost does besides running.

pub mod check;
pub mod migrate;
pub mod rejects;
pub mod spool;
