//! Starts, queries and kills the real servers on free ports of the loopback: Mosquitto, the
//! ClickHouse engine, milepost and milepost-map. The demo, the tests and the laboratory use this
//! crate. Dropping a handle kills its process.

mod broker;
mod clickhouse;
pub mod fields;
mod milepost;
mod process;
pub mod procfs;
pub mod prom;
pub mod sql;

use std::io::{ErrorKind, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

pub use self::broker::{Broker, BrokerKind};
pub use self::clickhouse::{ClickHouse, Store, get, password, query, user};
pub use self::milepost::{Map, Milepost, Settings};
pub use self::process::{
    Process, folder, free_port, in_scratch_folder, lock, repository, unless_interrupted, wait_until,
};

/// Returns the time of the wall clock, in milliseconds since 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a device has a clock")]
pub fn unix_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// Prints a line of a command's result. If the reader has closed the pipe (`| head`), discards the
/// line.
pub fn say(line: &str) {
    match writeln!(std::io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.expect("stdout is writable"),
    }
}
