//! What needs no server: the rooms against naive models, the input contract, the pipeline under paused time.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test's rooms have no outside, and its helpers may fail it"
)]

mod ack_model;
mod batch_model;
mod decode_contract;
mod deploy;
mod lane_model;
mod pipeline;
mod rows;
mod spool_files;
mod spool_rules;
mod tidy;
mod tools;
mod wire_model;
