//! Tests of the real binary with the real ClickHouse engine.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test's modules are private to it, and its helpers may panic"
)]

#[path = "../pure/tile_format.rs"]
mod tile_format;

mod access;
mod history;
mod live;
mod outages;
mod scopes;
mod shown;
mod world;
