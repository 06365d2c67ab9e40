//! Stand-ins for the real parts, for measurements in which these would be the limit.
//!
//! | module | job |
//! |---|---|
//! | [`firehose`] | plays the broker, as fast as the consumer takes it |
//! | [`sink`] | plays ClickHouse, and counts |
//! | [`tally`] | stored fixes as sets, where there is no ClickHouse |
//! | [`floor`] | the least a consumer could cost |
//! | `http` | HTTP for the sink |

pub mod firehose;
pub mod floor;
mod http;
pub mod sink;
pub mod tally;
