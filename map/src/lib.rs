//! milepost-map: the last position of every driver on a map. It reads ClickHouse. If `fences.user`
//! is set, it also writes fences, cards of drivers, and acknowledgements of alerts.
//!
//! ```text
//! ClickHouse ── store ──▶ live ──▶ fleet ──▶ tiles ──▶ http ──▶ page/
//!               one query a second               shared by all viewers
//!                  └────▶ history ── one query each ──▶ http
//! ```
//!
//! | module | input → output |
//! |---|---|
//! | [`geo`] | a place → its key on the Z-order curve through all tiles |
//! | [`fleet`] | rows of `last_positions_state` → last positions, sorted along that curve |
//! | [`tiles`] | a fleet and a tile → bytes |
//! | [`wire`] | tiles → one response body; each tile is compressed once for all viewers |
//! | [`params`] | a request's parameters → values, or an error that says what is valid |
//! | [`access`] | who may see which drivers: viewers and signed links |
//! | [`simplify`] | a track → fewer points, within a tolerance |
//! | [`basemap`] | ranges of a PMTiles file |
//! | [`tls`] | files → the server's certificate; `health` over TLS |
//! | [`config`] | defaults, file, environment → one checked configuration |
//! | [`metrics`] | counters |
//! | [`optional`] | ClickHouse's message about a missing table → a query that works without it |
//! | [`store`] | ClickHouse queries, each with its limits |
//! | [`live`] | live positions: the query loop, ticks, shared tiles |
//! | [`history`] | past positions: tracks, episodes, cells, replays |
//! | [`list`] | conditions (silent, fast, in a fence, …) → the drivers that meet them |
//! | [`driver`] | one driver's attributes, fields and card |
//! | [`standing`] | a driver's newest fix → since when the driver has stayed there |
//! | [`fences`] | reads and writes geofences |
//! | [`alerts`] | events of `milepost events`, with their acknowledgements |
//! | [`names`] | merges and writes drivers' cards |
//! | [`answer_cache`] | equal concurrent queries → one shared answer |
//! | [`http`] | requests → responses; authentication |
//!
//! A module imports only modules above it in this list. `geo`, `fleet`, `tiles`, `wire`, `params`
//! and `simplify` are pure.

pub mod access;
pub mod alerts;
pub mod answer_cache;
pub mod basemap;
#[cfg(test)]
#[path = "../../tests/pure/cases.rs"]
mod cases;
pub mod config;
pub mod driver;
mod erased;
pub mod fences;
pub mod fleet;
pub mod geo;
pub mod history;
pub mod http;
pub mod list;
pub mod live;
pub mod metrics;
pub mod names;
pub mod optional;
pub mod params;
pub mod simplify;
pub mod standing;
pub mod store;
pub mod tiles;
pub mod tls;
pub mod wire;
