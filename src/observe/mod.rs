//! What can be seen from outside: metrics, and what is wrong right now.

pub(crate) mod health;
pub mod http;
pub mod logging;
pub mod metrics;
