//! What tests and judges put around the real parts.
//!
//! | room | job |
//! |---|---|
//! | [`proxy`] | a TCP proxy that fails on demand: cuts, hangs, lost answers |
//! | [`background`] | a fleet that sends while its caller does something else |
//! | [`patched`] | builds a milepost with a patch applied |
//! | [`scripted_clickhouse`] | a ClickHouse that lies, hangs and cuts by script, in front of a real one |
//! | `server` | what these listen with |
//! | [`table`] | a table, for a report in Markdown |
//! | [`tls`] | certificates made on the spot, and TLS before a plain server |

pub mod background;
pub mod patched;
pub mod proxy;
pub mod scripted_clickhouse;
mod server;
pub mod table;
pub mod tls;
