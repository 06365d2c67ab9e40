//! Tests the real binary with a real broker and the real ClickHouse engine, on free ports of the
//! loopback interface.
#![expect(unreachable_pub, reason = "a test's modules are private to it")]

mod access;
mod add_a_field;
mod answers;
mod broker_metrics;
mod check;
mod cluster;
mod commands;
mod comments;
mod documented;
mod drain;
mod durability;
mod endpoints;
mod erase;
mod event_history;
mod events;
mod fences;
mod fields;
mod formats;
mod impolite;
mod import;
mod main_job;
mod missing;
mod nodes;
mod outages;
mod peers;
mod rare_faults;
mod readers;
mod scripted_broker;
mod secure;
mod spool;
mod tables;
mod tls;
mod world;
mod writers;
mod written_rows;
