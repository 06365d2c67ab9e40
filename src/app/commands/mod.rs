//! The commands `drain` and `spool`, which run parts of the consumer, and the command `migrate`.

pub mod drain;
pub mod migrate;
pub mod spool;
