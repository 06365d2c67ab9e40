//! Inserts of the commands that insert by themselves, again and again until they are done.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;
use twox_hash::XxHash3_128;

use crate::clickhouse::ClickHouse;
use crate::config::Config;
use crate::delivery::events::Piece;
use crate::delivery::retry::{self, Identity, Tries};
use crate::delivery::sink::{FailureKind, Sink as _, error_chain};
use crate::pipeline::batch::Batch;
use crate::pipeline::encode::{self, Insert};
use crate::pipeline::reject::Reject;

/// Inserts a batch without the rows of erased drivers; returns how many positions that were, and how many were left out. `stored`: of
/// the files that its rejects are from.
pub(super) async fn insert(
    config: &Config,
    clickhouse: &ClickHouse,
    mut batch: Batch,
    stored: &[(PathBuf, u64)],
) -> Result<(u64, u64)> {
    // Asked for each batch: a command may go on for long after somebody was erased.
    let erased = clickhouse.erased().await?;
    let all = batch.positions.len();
    batch.positions.retain(|position| !erased.has(&position.driver_id));
    batch.rejects.retain(|reject| !erased.has_bytes(reject.driver_id.as_bytes()));
    let (positions, number) = (batch.positions.len(), batch.id);
    // Rejects have no identity in their table. The same ones again, from the same place of the files, have the same token.
    let rejects = Identity { incarnation: of_rejects(&batch.rejects, stored), number: 0 };
    let inserts = spawn_blocking({
        let database = config.clickhouse.database.clone();
        move || encode::encode(batch, &database)
    });
    for (index, insert) in inserts.await?.into_iter().enumerate() {
        let is_positions = index == 0 && positions > 0;
        let identity = if is_positions { Identity::fresh(number) } else { rejects };
        insert_until_done(clickhouse, &insert, identity, config.clickhouse.insert_timeout).await?;
    }
    Ok((positions as u64, (all - positions) as u64))
}

#[expect(clippy::cast_possible_truncation, reason = "a hash")]
fn of_rejects(rejects: &[Reject], stored: &[(PathBuf, u64)]) -> u64 {
    let mut rows = Vec::new();
    let mut put = |part: &[u8]| {
        rows.extend_from_slice(&(part.len() as u64).to_le_bytes());
        rows.extend_from_slice(part);
    };
    for Reject { topic, driver_id, reason, payload, payload_bytes, count, .. } in rejects {
        for part in [topic.as_bytes(), driver_id.as_bytes(), reason.name().as_bytes(), payload] {
            put(part);
        }
        put(&payload_bytes.to_le_bytes());
        put(&count.to_le_bytes());
    }
    for (path, fixes) in stored {
        put(path.as_os_str().as_encoded_bytes());
        put(&fixes.to_le_bytes());
    }
    XxHash3_128::oneshot(&rows) as u64
}

/// `identity`: no insert of other rows has it.
pub(super) async fn insert_until_done(
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
