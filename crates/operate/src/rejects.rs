//! `milepost rejects replay`: decodes stored payloads again, after a bug fix or a change of the
//! format.
//!
//! Guarantee: the replay is idempotent. A fix is the same row however often it is replayed, because
//! it keeps the time at which its message was received. If the payload had no time, the time of
//! receipt is also the `ts` of the fix. The age of a fix is checked against the current time. The
//! rows of `rejects` stay.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::Instant;
use tracing::info;

use milepost_clickhouse::{StoredReject, Written};
use milepost_command::insert::{insert, retrying_writer};
use milepost_command::{Shown, tables};
use milepost_config::Config;
use milepost_core::batch::Batcher;
use milepost_decode::Message;
use milepost_decode::position::{DriverId, Timestamp};
use milepost_decode::reject::Reason;
use milepost_decode::{Decoded, Decoder};
use milepost_observe::now;

/// Advice if the query for the rejects broke off. A restart of the server ends that query, and so
/// does an insert that makes the query wait for minutes.
const INTERRUPTED: &str =
    "the replay was interrupted before the last reject: run it again, which stores no fix twice";
/// Interval between log lines about the progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Counts of the replayed rejects, by result.
#[derive(Debug, Default)]
pub struct Summary {
    rejects: u64,
    inserted: u64,
    /// Positions that were left out because their driver is erased.
    erased: u64,
    rejected_again: BTreeMap<Reason, u64>,
    /// Valid messages without a fix, which an earlier version rejected.
    ignored: u64,
    /// Rejects of which only the beginning of the payload is stored.
    truncated: u64,
    /// Rejects without a row of their own: above the flood limit, the row of another reject counts
    /// them.
    without_row: u64,
}

impl Summary {
    fn add(&mut self, written: Written) {
        self.inserted += written.rows;
        self.erased += written.erased;
    }

    /// Counts what was not a position. Positions count when they are inserted.
    fn add_others(&mut self, decoded: &Decoded) {
        for rejected in &decoded.rejects {
            *self.rejected_again.entry(rejected.reason).or_default() += 1;
        }
        self.ignored += decoded.ignored.len() as u64;
    }
}

impl Shown for Summary {
    fn json(&self) -> serde_json::Value {
        let Self { rejects, inserted, erased, rejected_again, ignored, truncated, without_row } =
            self;
        let again: BTreeMap<_, _> =
            rejected_again.iter().map(|(reason, count)| (reason.name(), count)).collect();
        serde_json::json!({
            "rejects": rejects, "positions_inserted": inserted, "erased": erased,
            "rejected_again": again, "ignored": ignored, "truncated": truncated,
            "without_row": without_row,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rejects                   {:>10}", self.rejects)?;
        writeln!(f, "positions inserted        {:>10}", self.inserted)?;
        if self.erased > 0 {
            writeln!(f, "left out                  {:>10}   of erased drivers", self.erased)?;
        }
        for (reason, count) in &self.rejected_again {
            writeln!(f, "rejected again            {count:>10}   {}", reason.name())?;
        }
        if self.ignored > 0 {
            writeln!(f, "ignored                   {:>10}   valid, without a fix", self.ignored)?;
        }
        writeln!(
            f,
            "not replayable: truncated {:>10}   only their first 64 KiB were stored",
            self.truncated
        )?;
        writeln!(
            f,
            "not replayable: sampled   {:>10}   above the flood limit, counted without a row",
            self.without_row
        )
    }
}

/// Decodes the stored rejects of a reason again and inserts the positions that are valid now.
///
/// # Errors
/// The server does not answer or refuses permanently, or its tables are not those of this binary.
pub async fn replay(config: &Config, reason: Reason, since: Timestamp) -> Result<Summary> {
    let clickhouse = tables::ready(config).await?;
    let decoder = Decoder::new(&config.sources, config.decode.clone());
    let mut batcher = Batcher::new(config.batch.clone());
    let (mut summary, mut writer) = (Summary::default(), retrying_writer(config));
    let mut decoded = Decoded::default();
    let mut logged_at = Instant::now();
    let mut rejects = clickhouse.rejects(reason, since)?;
    while let Some(reject) = rejects.next().await.context(INTERRUPTED)? {
        summary.rejects += reject.count;
        summary.without_row += reject.count.saturating_sub(1);
        if (reject.payload.len() as u64) < reject.payload_bytes {
            summary.truncated += 1;
            continue;
        }
        decode(&decoder, &reject, now(), &mut decoded);
        summary.add_others(&decoded);
        for position in decoded.positions.drain(..) {
            let instant = Instant::now().into_std();
            if !batcher.fits_position(&position) || batcher.is_full() {
                let written =
                    insert(config, &clickhouse, &mut writer, batcher.close(), &[]).await?;
                summary.add(written);
            }
            batcher.push_position(position, true, instant);
        }
        if logged_at.elapsed() >= PROGRESS_EVERY {
            logged_at = Instant::now();
            info!(rejects = summary.rejects, inserted = summary.inserted, "replaying rejects");
        }
    }
    summary.add(insert(config, &clickhouse, &mut writer, batcher.close(), &[]).await?);
    Ok(summary)
}

/// Decodes a stored payload as if it had arrived `now`. Its positions keep the original time of
/// receipt.
fn decode(decoder: &Decoder, reject: &StoredReject, now: Timestamp, decoded: &mut Decoded) {
    // A rejected point of an array was stored without the object around the array, which may have
    // held the driver's id. So pass the id of the stored row.
    let driver_id = DriverId::new(&reject.driver_id).ok();
    let mut decode_at = |received_at| {
        decoded.clear();
        let message = Message::new(reject.topic.as_bytes(), &reject.payload);
        decoder.decode_part(message, received_at, driver_id, decoded);
        decoded.omissions.undated
    };
    // A fix without a time gets the time of receipt, so decode such a payload as of that time.
    if decode_at(now) > 0 {
        decode_at(reject.received_at);
    }
    let received_at = reject.received_at;
    decoded.positions.iter_mut().for_each(|position| position.received_at = received_at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_that_is_ignored_now_is_counted() {
        let config = Config::defaults().unwrap();
        let decoder = Decoder::new(&config.sources, config.decode.clone());
        let (mut summary, mut decoded) = (Summary::default(), Decoded::default());
        for payload in ["online", r#"{"lat":91,"lng":1}"#] {
            let reject = StoredReject {
                received_at: now(),
                topic: "drivers/d7/gps".to_owned(),
                driver_id: "d7".to_owned(),
                payload: payload.into(),
                payload_bytes: payload.len() as u64,
                count: 1,
            };
            decode(&decoder, &reject, now(), &mut decoded);
            summary.add_others(&decoded);
        }
        let json = summary.json();
        let count = |value: &serde_json::Value| value.as_u64();
        assert_eq!(count(&json["ignored"]), Some(1), "{json}");
        assert_eq!(count(&json["rejected_again"]["lat_range"]), Some(1), "{json}");
        assert!(summary.to_string().contains("1   valid, without a fix"), "{summary}");
    }
}
