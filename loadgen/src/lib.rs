//! A simulated fleet for milepost, and its judges.
//!
//! | room | job |
//! |---|---|
//! | [`fleet`] | drivers that move; what each has sent |
//! | [`publish`] | sends a fleet's fixes over MQTT at a rate, and counts what the broker took |
//! | [`manifest`] | what was sent and acknowledged, on disk |
//! | [`verify`] | what was sent against what is stored, as sets |
//! | [`stack`] | starts and kills the real parts: broker, engine, milepost |
//! | [`proxy`] | a TCP proxy that fails on demand: cuts, hangs, lost answers |
//! | [`scripted_clickhouse`] | a ClickHouse that misbehaves by script, before a real engine |
//! | [`procfs`] | CPU and memory of a process |
//! | [`patched`] | builds a milepost with a patch applied |
//! | [`picture`] | the stored tracks as an SVG |
//! | [`faults`] | a fleet's bad days, and what was left of it afterwards |
//! | [`mqtt`] | MQTT as bytes, for the firehose and the floor |
//! | [`http`] | HTTP as bytes, for the sink and the floor |
//! | [`prom`] | Prometheus' text format |
//! | [`tally`] | stored fixes as sets, where there is no ClickHouse |
//! | [`firehose`] | plays the broker, as fast as the consumer takes it |
//! | [`sink`] | plays ClickHouse, and counts |
//! | [`floor`] | the least a consumer could cost |
//! | [`bench`] | milepost beside its peers, under the same load |
//! | [`demo`] | all of it, once, with a table and a picture at the end |

pub mod bench;
pub mod demo;
pub mod faults;
pub mod firehose;
pub mod fleet;
pub mod floor;
pub mod http;
pub mod manifest;
pub mod mqtt;
pub mod patched;
pub mod picture;
pub mod procfs;
pub mod prom;
pub mod proxy;
pub mod publish;
pub mod scripted_clickhouse;
pub mod sink;
pub mod stack;
pub mod tally;
pub mod verify;
