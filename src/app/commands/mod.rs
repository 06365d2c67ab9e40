//! The commands other than `run`.

pub mod check;
pub mod decode;
pub mod drain;
pub mod migrate;
pub mod rejects;
pub mod spool;
