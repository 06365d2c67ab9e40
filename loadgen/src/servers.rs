//! The servers of `demo` and `map`, on free ports.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use lab_stack::{Broker, ClickHouse, Milepost, Settings};

/// Free disk space that a demo needs, in bytes. ClickHouse's data parts take more space than the
/// rows in them.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// A broker, the ClickHouse engine, and a milepost between them.
pub(crate) struct Servers {
    pub(crate) broker: Broker,
    pub(crate) clickhouse: ClickHouse,
    pub(crate) milepost: Milepost,
}

impl Servers {
    /// Starts the servers with their data in `folder`. `settings` is a function that changes
    /// milepost's configuration.
    pub(crate) fn start(
        milepost: &Path,
        folder: &Path,
        settings: fn(Settings) -> Settings,
    ) -> Result<Self> {
        let binary = std::fs::canonicalize(milepost)
            .with_context(|| format!("no binary at {}", milepost.display()))?;
        let free = nix::sys::statvfs::statvfs(folder)?;
        let free = free.blocks_available() * free.fragment_size();
        ensure!(
            free >= FREE_BYTES_MIN,
            "only {} MiB of disk space are free: the demo needs {} MiB",
            free >> 20,
            FREE_BYTES_MIN >> 20
        );

        let (broker, clickhouse) = step("starting Mosquitto and the ClickHouse engine", || {
            Ok((Broker::start(folder)?, ClickHouse::start(folder)?))
        })?;
        let settings = settings(Settings::new(&binary, folder, broker.port, &clickhouse.url()));
        let milepost = step("milepost migrate, milepost run", || {
            settings.migrate()?;
            settings.run()
        })?;
        Ok(Self { broker, clickhouse, milepost })
    }
}

/// Prints the name of a step, runs it, and prints its duration.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprint!("{name} … ");
    let began = Instant::now();
    let result = work()?;
    eprintln!("{:.1} s", began.elapsed().as_secs_f64());
    Ok(result)
}
