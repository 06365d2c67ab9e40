//! Tests that need no server: modules against naive models, the input contract, the pipeline under
//! paused time.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test's modules are private to it, and its helpers may panic"
)]

mod asking;
mod cases;
mod data_kinds;
mod decode_contract;
mod decode_json;
mod deploy;
mod executor;
mod formats;
mod habits;
mod kubernetes;
mod links;
mod long_rows;
#[expect(dead_code, reason = "the core's own tests use the other items")]
#[path = "../../crates/core/tests/pure/model/mod.rs"]
mod model;
mod modules;
mod power_cuts;
mod readme;
mod real;
#[expect(dead_code, reason = "the core's own tests use the other items")]
#[path = "../../crates/core/tests/pure/rows.rs"]
mod rows;
#[path = "../../crates/core/tests/pure/saved.rs"]
mod saved;
mod sources;
mod tidy;
mod tour;
mod unpack;
