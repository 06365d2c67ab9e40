//! The broker as its clients see it: tests of the binary with a client that sends only what a test
//! tells it to send.
#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test's helpers may panic, even at a packet of another kind"
)]

mod client;
mod cluster;
mod exact;
mod lifecycle;
mod orders;
mod process;
mod refusals;
