//! Tests that need no server: tiles, parameters, the fleet's memory, the configuration, the docs.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test's modules are private to it, and its helpers may panic"
)]

#[path = "../../../tests/pure/cases.rs"]
mod cases;
mod config;
mod documented;
mod fleet;
mod params;
mod tile_format;
mod tiles;
mod wire;
