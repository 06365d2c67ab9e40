//! The real binary between a real broker and the real ClickHouse engine, on free ports of the loopback.
#![expect(unreachable_pub, reason = "a test's rooms have no outside")]

mod add_a_field;
mod commands;
mod durability;
mod main_job;
mod outages;
mod scripted_broker;
mod spool;
mod world;
