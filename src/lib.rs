//! milepost: drivers' GPS positions from an MQTT broker into ClickHouse, acknowledged when they are durable.

pub mod app;
pub mod check;
pub mod clickhouse;
pub mod config;
pub mod consumer;
pub mod delivery;
pub mod intake;
pub mod mqtt;
pub mod observe;
pub mod pipeline;
pub mod session;
pub mod spool;
pub mod tls;
