//! A simulated fleet for milepost, and the verifier of what was stored.
//!
//! | module | job |
//! |---|---|
//! | [`fleet`] | moving drivers, and what each has sent |
//! | [`format`](mod@format) | the payloads of the devices |
//! | [`manifest`] | the file of what was sent and acknowledged |
//! | `plan`, `publisher` | what to send; one connection that sends it |
//! | [`publish`] | publishes a fleet's fixes at a rate, and counts the acknowledgements |
//! | [`verify`] | compares the set sent with the set stored |
//! | `picture` | the stored tracks as an SVG |
//! | `parts` | broker, ClickHouse and milepost, for the two below |
//! | [`demo`] | one run, with a table and a picture at the end |
//! | [`map`] | a run on a live map, until Ctrl-C |

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
