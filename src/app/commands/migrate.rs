//! `milepost migrate`: creates or updates the tables.

use std::time::Instant;

use anyhow::Result;
use tokio::time::sleep;
use tracing::{info, warn};

use milepost_clickhouse as clickhouse;
use milepost_clickhouse::ClickHouse;
use milepost_command::tables::{CHECK_INTERVAL_UNREADY, WAITING_LOGGED_EVERY};
use milepost_config::Config;
use milepost_core::error_chain;
use milepost_core::throttle::Throttle;

/// Returns the statements that would create the tables on an empty server, and where each would
/// run. Contacts no server.
#[must_use]
pub fn plan(config: &Config) -> String {
    clickhouse::plan(&config.clickhouse)
}

/// Drops the columns of the fields `drop_fields`, then creates or updates the tables. Waits for a
/// server that is down.
///
/// # Errors
/// The server refuses, a migration was edited, or fields conflict with the tables.
pub async fn migrate(config: &Config, drop_fields: &[String]) -> Result<()> {
    let settings = &config.clickhouse;
    // If each host is migrated on its own, pin the endpoint: if that host is down, its migration
    // must not run on another host.
    let settings = if settings.changes_all_hosts() { settings.clone() } else { settings.pinned() };
    let clickhouse = ClickHouse::new(&settings)?;
    let mut log = Throttle::every(WAITING_LOGGED_EVERY);
    // Do not repeat a step that succeeded. `check_drop` rejects a field that does not exist, so it
    // must not run again after a drop: a drop may have succeeded although its answer was lost.
    let (mut is_checked, mut to_drop) = (drop_fields.is_empty(), drop_fields);
    let applied = loop {
        let migrated = async {
            if !is_checked {
                clickhouse.check_drop(drop_fields).await?;
                is_checked = true;
            }
            while let [field, remaining @ ..] = to_drop {
                clickhouse.drop_field(field).await?;
                to_drop = remaining;
            }
            clickhouse.migrate().await
        };
        match migrated.await {
            Ok(applied) => break applied,
            Err(error) if error.may_succeed_on_retry() => {
                if log.allow(Instant::now()) {
                    warn!(why = error_chain(&error), "waiting for ClickHouse");
                }
                sleep(CHECK_INTERVAL_UNREADY).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    info!(database = config.clickhouse.database, applied = applied.len(), "migrated");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// Answers every query with no rows, so no table has a field.
    async fn empty_server(listener: TcpListener) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    }

    #[tokio::test]
    async fn drop_field_waits_for_a_server_that_is_down() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let config = format!("[clickhouse]\nurl = 'http://{address}'");
        let config = Config::parse(&config).unwrap();
        let fields = ["battery".to_owned()];
        let mut migrated = Box::pin(migrate(&config, &fields));
        assert!(
            timeout(Duration::from_millis(500), &mut migrated).await.is_err(),
            "migrate must wait for the server"
        );
        let server = tokio::spawn(empty_server(TcpListener::bind(address).await.unwrap()));
        let error = timeout(Duration::from_secs(10), migrated).await.unwrap().unwrap_err();
        assert!(error.to_string().starts_with("there is no field battery"), "{error:#}");
        server.abort();
    }
}
