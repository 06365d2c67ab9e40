//! `milepost migrate`, and waiting for it.

use std::time::Duration;

use anyhow::Result;
use tracing::{info, warn};

use crate::clickhouse::{ClickHouse, Error};
use crate::config::Config;
use crate::delivery::sink::error_chain;

/// How often a server that is not there, or not migrated, is asked again.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How often the waiting is logged again.
const QUESTIONS_PER_LOG_LINE: u32 = 10;

/// Creates or updates the tables; waits for a server that is not there.
///
/// # Errors
/// The server's refusal, or an edited migration.
pub async fn migrate(config: &Config) -> Result<()> {
    let clickhouse = ClickHouse::new(&config.clickhouse)?;
    let mut waits = Waits::default();
    let applied = loop {
        match clickhouse.migrate().await {
            Ok(applied) => break applied,
            Err(error) if error.may_pass() => waits.wait(config, &error_chain(&error)).await,
            Err(error) => return Err(error.into()),
        }
    };
    info!(database = config.clickhouse.database, applied = applied.len(), "migrated");
    Ok(())
}

/// Returns when the tables are those of this binary.
///
/// # Errors
/// They can never be.
pub(super) async fn wait_until_migrated(config: &Config, clickhouse: &ClickHouse) -> Result<()> {
    let mut waits = Waits::default();
    loop {
        match clickhouse.pending().await {
            Ok(pending) if pending.is_empty() => return Ok(()),
            Ok(pending) => {
                let names: Vec<_> = pending.iter().map(|migration| migration.name).collect();
                waits
                    .wait(config, &format!("not migrated: `milepost migrate` applies {}", names.join(", ")))
                    .await;
            }
            Err(error @ (Error::Edited { .. } | Error::Password(_))) => return Err(error.into()),
            Err(error @ Error::Server { .. }) => waits.wait(config, &error_chain(&error)).await,
        }
    }
}

#[derive(Default)]
struct Waits(u32);

impl Waits {
    async fn wait(&mut self, config: &Config, why: &str) {
        if self.0.is_multiple_of(QUESTIONS_PER_LOG_LINE) {
            warn!(url = config.clickhouse.url, why, "waiting for ClickHouse");
        }
        self.0 += 1;
        tokio::time::sleep(ASK_EVERY).await;
    }
}
