//! A simulated fleet for milepost, and its judge.
//!
//! | room | job |
//! |---|---|
//! | [`fleet`] | drivers that move; what each has sent |
//! | [`format`](mod@format) | what the devices speak |
//! | [`manifest`] | what was sent and acknowledged, on disk |
//! | `plan`, `publisher` | what to send; one connection that sends it |
//! | [`publish`] | sends a fleet's fixes over MQTT at a rate, and counts what the broker took |
//! | [`verify`] | what was sent against what is stored, as sets |
//! | `picture` | the stored tracks as an SVG |
//! | `parts` | broker, ClickHouse and milepost, for the two below |
//! | [`demo`] | all of it, once, with a table and a picture at the end |
//! | [`map`] | all of it on a live map, until Ctrl-C |

pub mod demo;
pub mod fleet;
pub mod format;
pub mod manifest;
pub mod map;
mod parts;
mod picture;
mod plan;
pub mod publish;
mod publisher;
pub mod verify;
