//! Tests of the core, in memory: rule by rule, and against naive models. Run them with
//! `cargo test -p milepost-core`.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test's modules are private to it, its helpers may panic, and its clock starts at \
              the real time"
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
