//! The core against naive models and by its rules, in memory alone: `cargo test -p milepost-core`.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test's modules have no outside, its helpers may fail it, and it begins at the real now"
)]

mod batch_model;
#[path = "../../../../tests/pure/cases.rs"]
mod cases;
mod consumer_model;
mod consumer_rules;
mod delivery_rules;
mod flow_rules;
mod former_sessions;
mod group_age;
mod group_model;
mod group_scale;
mod model;
mod nodes;
mod one_message;
mod peers_model;
mod rows;
mod saved;
