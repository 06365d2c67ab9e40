//! Retries the queries that an import sends between its inserts.

use anyhow::Result;
use tokio::time::sleep;
use tracing::warn;

use milepost_clickhouse::{Cause, ClickHouse, Error, Retries};
use milepost_core::error_chain;

/// Pauses between the attempts of a query. Like inserts, these queries are retried until ClickHouse
/// answers. A permanent error ends the retries.
pub(super) struct Pause {
    failures: u32,
    retries: Retries,
}

impl Pause {
    pub(super) fn new() -> Self {
        Self { failures: 0, retries: Retries::new() }
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Waits until the next attempt is due. Each reason is logged, at most once a minute.
    ///
    /// # Errors
    /// The error is permanent, or the answer does not come from ClickHouse.
    pub(super) async fn wait_or_fail(
        &mut self,
        clickhouse: &ClickHouse,
        error: Error,
    ) -> Result<()> {
        let is_foreign = error.cause_to_leave() == Some(Cause::NotClickHouse);
        if is_foreign || !clickhouse.may_succeed_later(&error) {
            return Err(error.into());
        }
        self.failures += 1;
        let why = error_chain(&error);
        let (delay, is_logged) = self.retries.next(self.failures, &why);
        if is_logged {
            warn!(failures = self.failures, retry_in = ?delay, error = why, "a query failed");
        }
        sleep(delay).await;
        Ok(())
    }
}
