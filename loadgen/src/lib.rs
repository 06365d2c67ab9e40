//! A simulated fleet for milepost, and a verifier of the stored fixes.
//!
//! | module | job |
//! |---|---|
//! | [`fleet`] | moving drivers, and the fixes that they send |
//! | [`format`](mod@format) | the payloads of the devices |
//! | [`manifest`] | the file that records the fixes sent and acknowledged |
//! | `plan`, `publisher` | the plan of a fleet; one connection that publishes its share |
//! | [`publish`] | publishes a fleet's fixes at a rate, and counts the acknowledgements |
//! | [`verify`] | compares the fixes sent with the fixes stored |
//! | `picture` | the stored tracks as an SVG |
//! | `servers` | starts broker, ClickHouse and milepost, for `demo` and `map` |
//! | [`demo`] | one verified run, with a table and a picture at the end |
//! | [`map`] | a fleet on the live map, until Ctrl-C |

pub mod demo;
pub mod fleet;
pub mod format;
pub mod manifest;
pub mod map;
mod picture;
mod plan;
pub mod publish;
mod publisher;
mod servers;
pub mod verify;
