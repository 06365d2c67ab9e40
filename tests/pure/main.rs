//! What needs no server: the rooms against naive models, the input contract, the pipeline under paused time.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test's rooms have no outside, and its helpers may fail it"
)]

mod asking;
mod batch_model;
mod cases;
mod codec_model;
mod consumer_model;
mod consumer_rules;
mod data_kinds;
mod decode_agrees;
mod decode_command;
mod decode_contract;
mod delivery_rules;
mod deploy;
mod events_model;
mod executor;
mod flow_rules;
mod formats;
mod former_sessions;
mod group_model;
mod habits;
mod kubernetes;
mod links;
mod model;
mod modules;
mod nodes;
mod peers_model;
mod power_cuts;
mod rows;
mod saved;
mod sources;
mod spool_files;
mod tidy;
mod unpack;
