//! `milepost migrate`.

use std::time::Instant;

use anyhow::Result;
use tokio::time::sleep;
use tracing::{info, warn};

use milepost_clickhouse as clickhouse;
use milepost_clickhouse::ClickHouse;
use milepost_command::tables::{ASK_EVERY, WAITING_LOGGED_EVERY};
use milepost_config::Config;
use milepost_core::error_chain;
use milepost_core::throttle::Throttle;

/// Returns every statement of a migration of an empty server, and where it would run. Contacts no
/// server.
#[must_use]
pub fn plan(config: &Config) -> String {
    clickhouse::plan(&config.clickhouse)
}

/// Drops the columns of the field `drop_field`, if set, then creates or updates the tables. Waits
/// for a server that is away.
///
/// # Errors
/// The server's refusal, an edited migration, or fields that do not fit the tables.
pub async fn migrate(config: &Config, drop_field: Option<&str>) -> Result<()> {
    let clickhouse = ClickHouse::new(&config.clickhouse.for_migrations())?;
    let mut log = Throttle::every(WAITING_LOGGED_EVERY);
    if let Some(field) = drop_field {
        clickhouse.drop_field(field).await?;
    }
    let applied = loop {
        match clickhouse.migrate().await {
            Ok(applied) => break applied,
            Err(error) if error.may_pass() => {
                if log.allow(Instant::now()) {
                    warn!(why = error_chain(&error), "waiting for ClickHouse");
                }
                sleep(ASK_EVERY).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    info!(database = config.clickhouse.database, applied = applied.len(), "migrated");
    Ok(())
}
