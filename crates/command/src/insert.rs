//! Inserts batches for the commands that decode by themselves: import and rejects replay.

use std::path::PathBuf;

use anyhow::Result;
use tokio::task::spawn_blocking;
use twox_hash::XxHash3_128;

use milepost_clickhouse::{ClickHouse, Retry, Writer, Written};
use milepost_config::Config;
use milepost_core::batch::Batch;
use milepost_core::delivery::retry::Identity;
use milepost_core::encode;
use milepost_decode::reject::Reject;

/// Returns a writer that retries until ClickHouse has the rows.
pub fn retrying_writer(config: &Config) -> Writer {
    Writer::new(config.clickhouse.insert_timeout, Retry::UntilDone)
}

/// Inserts a batch without the rows of erased drivers. Returns how many positions were inserted and
/// how many were left out. `stored`: the files that the batch was read from, each with the number
/// of its fixes that are stored once this batch is stored.
pub async fn insert(
    config: &Config,
    clickhouse: &ClickHouse,
    writer: &mut Writer,
    batch: Batch,
    stored: &[(PathBuf, u64)],
) -> Result<Written> {
    let (has_positions, number) = (!batch.positions.is_empty(), batch.id);
    // `rejects` has no key by which ClickHouse could merge duplicates. So equal rejects from the
    // same place in the files get the same token, and ClickHouse drops the repeated insert.
    let rejects = Identity { incarnation: hash_of_rejects(&batch.rejects, stored), number: 0 };
    let inserts = spawn_blocking({
        let database = config.clickhouse.database.clone();
        move || encode::encode(batch, &database)
    });
    let mut written = Written::default();
    // `encode` returns the insert of positions, if there are any, before that of rejects.
    for (index, insert) in inserts.await?.into_iter().enumerate() {
        if index == 0 && has_positions {
            written = writer
                .write(clickhouse, &insert, milepost_clickhouse::fresh_identity(number))
                .await?;
        } else {
            writer.write(clickhouse, &insert, rejects).await?;
        }
    }
    Ok(written)
}

/// Returns a hash of the rejects and of their place in the files.
#[expect(clippy::cast_possible_truncation, reason = "a hash")]
fn hash_of_rejects(rejects: &[Reject], stored: &[(PathBuf, u64)]) -> u64 {
    let mut rows = Vec::new();
    // Write the length before each part, so that different lists of parts give different bytes.
    let mut append = |part: &[u8]| {
        rows.extend_from_slice(&(part.len() as u64).to_le_bytes());
        rows.extend_from_slice(part);
    };
    for Reject { topic, driver_id, reason, payload, payload_bytes, count, .. } in rejects {
        for part in [topic.as_bytes(), driver_id.as_bytes(), reason.name().as_bytes(), payload] {
            append(part);
        }
        append(&payload_bytes.to_le_bytes());
        append(&count.to_le_bytes());
    }
    for (path, fixes) in stored {
        append(path.as_os_str().as_encoded_bytes());
        append(&fixes.to_le_bytes());
    }
    XxHash3_128::oneshot(&rows) as u64
}
