//! The broker as its clients see it: the binary, and a client that does nothing by itself.
//!
#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test's helpers may fail it, also at a packet of any other kind"
)]

mod client;
mod cluster;
mod exact;
mod lives;
mod manners;
mod orders;
mod process;
