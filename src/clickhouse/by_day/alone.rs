//! One `milepost backfill` at a time. Each says every few seconds that it is at work; whoever sees another one at work leaves.
//!
//! Guarantee: of two that are at work at the same time at least one leaves before it changes anything, and one that was held up for long
//! enough to be taken for dead leaves before it exchanges tables. One that was killed is waited for, for [`SILENT_SECONDS_MAX`].

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use super::records::ENDED;
use crate::clickhouse::client::{ClickHouse, Error};
use crate::clickhouse::files::BACKFILLS;
use crate::delivery::sink::error_chain;

/// What is recorded of each that is at work.
const RUN: &str = "run";
const SAY_EVERY: Duration = Duration::from_secs(2);
/// Who has said nothing for so long is not at work any more.
const SILENT_SECONDS_MAX: &str = "30";

impl ClickHouse {
    /// Returns when no other run is at work. `run` is this one's name.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Refused`] if another one is at work.
    pub(crate) async fn be_alone(&self, run: &str) -> Result<(), Error> {
        let mut last = None;
        while let Some(other) = self.others(run).await? {
            if last.as_ref().is_some_and(|last| *last != other) {
                return Err(at_work(&other));
            }
            if last.is_none() {
                info!(
                    other = other.join(", "),
                    "another run was at work lately; waiting, to see whether it was killed"
                );
            }
            last = Some(other);
            sleep(SAY_EVERY / 2).await;
        }
        self.note(RUN, run, "").await?;
        self.ensure_alone(run).await
    }

    /// # Errors
    /// As [`ClickHouse::be_alone`]; it does not wait.
    pub(crate) async fn ensure_alone(&self, run: &str) -> Result<(), Error> {
        self.others(run).await?.map_or(Ok(()), |other| Err(at_work(&other)))
    }

    /// Says again and again that this run is at work.
    pub(crate) async fn keep_saying(&self, run: &str) -> Infallible {
        loop {
            sleep(SAY_EVERY).await;
            if let Err(error) = self.note(RUN, run, "").await {
                warn!(error = %error_chain(&error), "others are not told that this run is at work");
            }
        }
    }

    /// # Errors
    /// See [`Error`].
    pub(crate) async fn leave(&self, run: &str) -> Result<(), Error> {
        self.note(RUN, run, ENDED).await
    }

    /// The last that is at work, and what it said last.
    async fn others(&self, run: &str) -> Result<Option<Vec<String>>, Error> {
        let sql = format!(
            "SELECT step, done_at FROM {}.{BACKFILLS} FINAL WHERE job = '{RUN}' AND step != '{run}' AND until = '' \
             AND done_at > now64(3) - INTERVAL {SILENT_SECONDS_MAX} SECOND ORDER BY done_at DESC LIMIT 1",
            self.database
        );
        Ok(self.ask("asking for other runs", &sql).await?.into_iter().next())
    }
}

fn at_work(other: &[String]) -> Error {
    Error::Refused(format!(
        "another milepost backfill is at work (process {}): one at a time. If it was killed, it is forgotten after \
         {SILENT_SECONDS_MAX} s",
        other.join(", last heard of ")
    ))
}
