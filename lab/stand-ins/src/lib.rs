//! Stand-ins for the real servers, for measurements in which the real servers would be the
//! bottleneck.
//!
//! | module | job |
//! |---|---|
//! | [`firehose`] | stands in for the broker, and sends as fast as the consumer reads |
//! | [`sink`] | stands in for ClickHouse, and counts rows |
//! | [`tally`] | stored fixes as sets, for the sink |
//! | [`floor`] | the cheapest possible consumer |
//! | `http` | the sink's HTTP server |

pub mod firehose;
pub mod floor;
mod http;
pub mod sink;
pub mod tally;
