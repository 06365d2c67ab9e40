//! Checks that ClickHouse has the tables of this binary. Every command that inserts positions makes
//! this check before its first row.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use milepost_clickhouse::{Cause, ClickHouse, Error, Migration, migration_names};
use milepost_config::Config;
use milepost_core::delivery::events::Schema;
use milepost_core::error_chain;
use milepost_core::throttle::Throttle;

/// The reason that `/readyz` gives before the first query to ClickHouse.
pub const NOT_ASKED: &str = "not asked yet";
/// Interval between checks while ClickHouse answers and the tables are ready.
pub const CHECK_INTERVAL_READY: Duration = Duration::from_secs(30);
/// Interval between checks while ClickHouse does not answer, or the tables are not ready.
pub const CHECK_INTERVAL_UNREADY: Duration = Duration::from_secs(1);
/// Interval between log lines while the tables are not ready.
pub const WAITING_LOGGED_EVERY: Duration = Duration::from_secs(30);
/// Timeout of the queries that check whether another endpoint is usable.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the query that counts replicas. After a timeout, the last count stays in force.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the state of the tables before the first query.
#[must_use]
pub fn not_asked() -> Schema {
    Schema::Unknown(NOT_ASKED.to_owned())
}

/// Waits until the tables exist and match this binary. Passes the reason for waiting to `report`.
///
/// # Errors
/// A migration was edited after it was applied.
pub async fn until_ready(clickhouse: &ClickHouse, report: impl Fn(&str)) -> Result<()> {
    let mut log = Throttle::every(WAITING_LOGGED_EVERY);
    loop {
        let endpoint = clickhouse.endpoint_in_use();
        let Verdict { schema, cause, .. } = judge(clickhouse, &not_asked()).await?;
        let is_refused = matches!(schema, Schema::Refused(_));
        let (Schema::Unknown(why) | Schema::Refused(why)) = schema else { return Ok(()) };
        report(&why);
        if let Some(cause) = cause {
            // If the endpoint does not answer, leave it at once. If it refuses, leave it only for
            // an endpoint that is known to be usable.
            if !is_refused {
                clickhouse.leave_endpoint(endpoint, cause, &why);
            } else if leave_for_usable_endpoint(clickhouse, cause, &why).await {
                continue;
            }
        }
        if log.allow(Instant::now().into_std()) {
            warn!(why, "waiting for ClickHouse");
        }
        sleep(CHECK_INTERVAL_UNREADY).await;
    }
}

/// Returns a client, after a single check of the tables. If the check fails because of the endpoint
/// in use, moves to another endpoint that has the tables.
///
/// # Errors
/// The tables do not exist or do not match this binary, or the server does not answer.
pub async fn ready(config: &Config) -> Result<ClickHouse> {
    let clickhouse = ClickHouse::new(&config.clickhouse)?;
    let Verdict { schema, cause, .. } = judge(&clickhouse, &not_asked()).await?;
    let (Schema::Unknown(why) | Schema::Refused(why)) = schema else { return Ok(clickhouse) };
    if let Some(cause) = cause
        && leave_for_usable_endpoint(&clickhouse, cause, &why).await
    {
        return Ok(clickhouse);
    }
    bail!(why)
}

/// Moves to another usable endpoint: it has the tables of this binary, and its list of erased
/// drivers can be read. Returns `false` if no other endpoint is usable. The current endpoint then
/// stays in use, and the caller reports `why`.
pub async fn leave_for_usable_endpoint(clickhouse: &ClickHouse, cause: Cause, why: &str) -> bool {
    clickhouse.leave_for_usable_endpoint(cause, why, ENDPOINT_TIMEOUT, is_usable).await
}

/// Checks this member's own endpoint, if such a check is due, and moves back if the endpoint is
/// usable: it has the tables of this binary, and its list of erased drivers can be read. Returns
/// whether the client moved back.
pub async fn return_to_own_endpoint(clickhouse: &ClickHouse) -> bool {
    let now = Instant::now().into_std();
    clickhouse.return_to_own_endpoint(now, ENDPOINT_TIMEOUT, is_usable).await
}

async fn is_usable(endpoint: &ClickHouse) -> bool {
    let (verdict, list) = tokio::join!(judge(endpoint, &Schema::Ready), endpoint.erased());
    verdict.is_ok_and(|verdict| verdict.schema == Schema::Ready) && list.is_ok()
}

/// Returns a client, after checking that every migration of this binary is recorded. Does not
/// compare the columns of the tables: the callers need other tables and grants than `run`.
///
/// # Errors
/// A migration is not recorded, or the server does not answer.
pub async fn connect_if_migrated(config: &Config) -> Result<ClickHouse> {
    let clickhouse = ClickHouse::new(&config.clickhouse)?;
    let pending = clickhouse.pending().await?;
    ensure!(pending.is_empty(), not_migrated(&pending));
    Ok(clickhouse)
}

fn not_migrated(pending: &[Migration]) -> String {
    format!("not migrated: run `milepost migrate`, which applies {}", migration_names(pending))
}

/// The result of a check of the tables at one endpoint.
#[derive(Debug)]
pub struct Verdict {
    pub schema: Schema,
    /// Reason to try another endpoint. `None` if this endpoint has the tables, or if the failure
    /// has another cause than this endpoint.
    pub cause: Option<Cause>,
    /// The server's error code, if it answered with one.
    pub code: Option<u32>,
}

impl From<Schema> for Verdict {
    fn from(schema: Schema) -> Self {
        Self { schema, cause: None, code: None }
    }
}

impl Verdict {
    /// Returns the verdict that an error implies.
    #[must_use]
    pub fn from_error(error: &Error) -> Self {
        let (cause, code) = (error.cause_to_leave(), error.code());
        Self { schema: schema_of_error(error), cause, code }
    }

    fn no_tables(why: String) -> Self {
        Self { cause: Some(Cause::NoTables), ..Schema::Refused(why).into() }
    }
}

/// Compares the tables with this binary. `before`: the last known state of the tables.
///
/// Inserts must wait for this check, for two reasons. A materialized view receives no rows that
/// were inserted before the view existed. And if the type of a column is not the one that this
/// binary sends, the server misreads the values.
///
/// # Errors
/// A migration was edited after it was applied, and `before` is not [`Schema::Ready`].
pub async fn judge(clickhouse: &ClickHouse, before: &Schema) -> Result<Verdict> {
    // Inserts can use an older count of replicas, so do not wait for a slow query.
    let replicas = timeout(REPLICAS_TIMEOUT, clickhouse.count_replicas());
    let (pending, misfits, _) = tokio::join!(clickhouse.pending(), clickhouse.misfits(), replicas);
    match pending {
        Ok(pending) if pending.is_empty() => {}
        Ok(pending) => return Ok(Verdict::no_tables(not_migrated(&pending))),
        Err(error @ Error::Edited { .. }) if *before != Schema::Ready => bail!(error),
        Err(error) => return Ok(Verdict::from_error(&error)),
    }
    Ok(match misfits {
        Ok(misfits) if misfits.is_empty() => Verdict::from(Schema::Ready),
        Ok(misfits) => Verdict::no_tables(format!(
            "the tables are not those of this version: {}; restore them, or run the version of \
             milepost that they belong to",
            misfits.join(", ")
        )),
        Err(error) => Verdict::from_error(&error),
    })
}

/// Returns the state of the tables that an error implies: unknown if the error is transient, else
/// refused.
fn schema_of_error(error: &Error) -> Schema {
    let why = error_chain(error);
    if error.may_succeed_on_retry() { Schema::Unknown(why) } else { Schema::Refused(why) }
}
