//! Test doubles and tools that surround the real programs in tests and in the laboratory.
//!
//! | module | job |
//! |---|---|
//! | [`proxy`] | a TCP proxy that fails on demand: cuts, hangs, lost answers |
//! | [`background`] | a fleet that publishes from its own thread |
//! | [`patched`] | builds a milepost with a patch applied |
//! | [`scripted_clickhouse`] | a ClickHouse that misbehaves by script, in front of a real engine |
//! | `server` | the listener of the proxies and stand-ins |
//! | [`table`] | a table of a Markdown report |
//! | [`tls`] | certificates generated for a test, and a TLS proxy in front of a plain server |

pub mod background;
pub mod patched;
pub mod proxy;
pub mod scripted_clickhouse;
mod server;
pub mod table;
pub mod tls;
