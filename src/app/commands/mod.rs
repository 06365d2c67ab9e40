//! The commands other than `run`.

pub mod check;
pub mod decode;
pub mod drain;
pub mod erase;
pub mod events;
pub mod fences;
pub mod import;
mod lines;
pub mod migrate;
pub mod rejects;
pub mod spool;
pub mod top;
pub mod trace;

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use tokio::time::sleep;
use tracing::warn;

use crate::clickhouse::ClickHouse;
use crate::delivery::events::Piece;
use crate::delivery::retry::{self, Identity, Tries};
use crate::delivery::sink::{FailureKind, Sink as _, error_chain};
use crate::pipeline::encode::Insert;
use crate::pipeline::position::{DRIVER_ID_RULE, DriverId};

/// A result that prints as a table, or with `--json` as one object on one line.
pub trait Shown: Display {
    fn json(&self) -> serde_json::Value;

    fn shown(&self, json: bool) -> String {
        if json { format!("{}\n", self.json()) } else { self.to_string() }
    }
}

/// A driver's id of the command line.
fn driver(text: &str) -> Result<DriverId> {
    DriverId::new(text).map_err(|_| anyhow!("{text:?}: {DRIVER_ID_RULE}"))
}

/// For commands that insert by themselves. `identity`: no insert of other rows has it.
async fn insert_until_done(
    clickhouse: &ClickHouse,
    insert: &Insert,
    identity: Identity,
    within: Duration,
) -> Result<()> {
    let mut tries = Tries::new(identity);
    let whole = Piece { insert: 0, rows: 0..insert.rows };
    while let Err(error) = clickhouse.insert(insert, &tries.next(&whole, within)).await {
        if matches!(error.kind, FailureKind::Permanent | FailureKind::TooLarge) {
            bail!("{}", error_chain(&error));
        }
        tries.failed(error.kind);
        let delay = retry::delay(tries.failures, &mut fastrand::Rng::new());
        warn!(rows = insert.rows, failures = tries.failures, retry_in = ?delay, error = %error_chain(&error), "insert failed");
        sleep(delay).await;
    }
    Ok(())
}
