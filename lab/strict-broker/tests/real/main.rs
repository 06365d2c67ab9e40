//! The broker as its clients see it: the binary, and a client that does nothing by itself.
//!
//! `cargo test -p strict-broker`; the measurement: `cargo test --release -p strict-broker -- --ignored --nocapture`.
#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test's helpers may fail it, also at a packet of any other kind, and a measurement is told"
)]

mod client;
mod exact;
mod lives;
mod measured;
mod orders;
mod process;
mod snapshots;
