//! Commands that use the consumer itself: `drain`, `spool` and `migrate`.

pub mod drain;
pub mod migrate;
pub mod spool;
