//! milepost-map: where everybody is, on a map. Reads what milepost stored, and writes nothing.
//!
//! ```text
//! ClickHouse ── store ──▶ live ──▶ fleet ──▶ tiles ──▶ http ──▶ page/
//!               "what has changed?"  once a second       shared by all viewers
//!                  └────▶ history ── a question each ──▶ http
//! ```
//!
//! | room | what goes in, what comes out |
//! |---|---|
//! | [`geo`] | a place → its key on the curve through all tiles |
//! | [`fleet`] | rows of `last_positions_state` → everybody's last position, in the order of the map |
//! | [`tiles`] | a fleet and a tile → bytes |
//! | [`wire`] | tiles → one answer of many, compressed once for all |
//! | [`params`] | a request's parameters → values, or what is right |
//! | [`simplify`] | a track → the same with fewer points |
//! | [`tls`] | files → what viewers see as our certificate; whether our own server is ready behind it |
//! | [`config`] | defaults, file, environment → one checked configuration |
//! | [`metrics`] | what is counted |
//! | [`store`] | questions to ClickHouse, each with its limits |
//! | [`live`] | the present: the loop that asks, ticks, shared tiles |
//! | [`history`] | the past: tracks, episodes, cells |
//! | [`http`] | requests → answers; who may ask |
//!
//! A room uses only rooms above it in this list. `geo`, `fleet`, `tiles`, `wire`, `params` and `simplify` are pure.

pub mod config;
pub mod fleet;
pub mod geo;
pub mod history;
pub mod http;
pub mod live;
pub mod metrics;
pub mod params;
pub mod simplify;
pub mod store;
pub mod tiles;
pub mod tls;
pub mod wire;
