//! The commands that are the consumer, for a time or a directory, and its tables'.

pub mod drain;
pub mod migrate;
pub mod spool;
