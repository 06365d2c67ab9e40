//! `milepost backfill`: what a migration cannot do in a moment. Today that is one thing: `positions`, which is in the
//! order of drivers, becomes a table in the order of days, while fixes come in.
//!
//! Guarantee: it can be stopped at any time, and goes on where it was. Apart from `migrate`, because it takes as long as copying the
//! history takes, and needs twice its room: when, is for a person to say. Until then everything works as before.

use std::fmt::Write as _;

use anyhow::Result;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::app::now_ms;
use crate::app::schema::{self, ASK_EVERY, Waits};
use crate::clickhouse::{self, ClickHouse, Error, Move, OLD_POSITIONS};
use crate::config::Config;
use crate::delivery::sink::error_chain;

/// Every statement, and where it would run. Asks no server.
#[must_use]
pub fn plan(config: &Config) -> String {
    let mut plan = String::new();
    for (what, place, sql) in clickhouse::plan_of_the_move(&config.clickhouse) {
        let _ = writeln!(plan, "-- {what}: {place}\n{};\n", sql.trim_end());
    }
    plan
}

/// Moves `positions`, if that is not done; waits for a server that is not there.
///
/// # Errors
/// The tables are not migrated, another one is at work, or the server's refusal.
pub async fn backfill(config: &Config) -> Result<()> {
    let clickhouse = ClickHouse::new(&config.clickhouse)?;
    schema::ensure_ready(&clickhouse).await?;
    let run = format!("{} of {}", std::process::id(), now_ms());
    clickhouse.be_alone(&run).await?;
    let moved = tokio::select! {
        moved = until_moved(&clickhouse, &run) => moved,
        never = clickhouse.keep_saying(&run) => match never {},
    };
    clickhouse.leave(&run).await?;
    moved?;
    info!(database = config.clickhouse.database, "positions is in the order of days, nothing is left to do");
    Ok(())
}

async fn until_moved(clickhouse: &ClickHouse, run: &str) -> Result<()> {
    let mut waits = Waits::default();
    loop {
        match step(clickhouse, run).await {
            Ok(Move::ByDay) => return Ok(()),
            Ok(Move::HostsDiffer) => waits.tell("some hosts have not exchanged the tables yet"),
            Ok(Move::ByDriver | Move::Exchanged) => continue,
            Err(error) if error.may_pass() => {
                warn!(error = %error_chain(&error), "not done; it goes on where it was");
            }
            Err(error) => return Err(error.into()),
        }
        sleep(ASK_EVERY).await;
    }
}

/// Does what is next; returns what was found.
async fn step(clickhouse: &ClickHouse, run: &str) -> Result<Move, Error> {
    let found = clickhouse.how_far_is_the_move().await?;
    match found {
        Move::ByDay | Move::HostsDiffer => {}
        Move::ByDriver => {
            clickhouse.begin_the_move().await?;
            info!("what comes from now on goes into both tables");
            copy(clickhouse).await?;
            clickhouse.ensure_alone(run).await?;
            clickhouse.exchange().await?;
        }
        Move::Exchanged => {
            info!("positions is in the order of days now; looking for what came meanwhile");
            clickhouse.ensure_alone(run).await?;
            clickhouse.end_the_move().await?;
            info!("the older table is {OLD_POSITIONS}: nobody reads it any more, drop it when you like");
        }
    }
    Ok(found)
}

/// All months, and of each what was not copied.
async fn copy(clickhouse: &ClickHouse) -> Result<(), Error> {
    let months = clickhouse.months().await?;
    let (began, mut copied) = (Instant::now(), 0);
    let total: u64 = months.iter().map(|month| month.rows).sum();
    for month in &months {
        let mut after = month.copied_until.clone();
        if after.as_deref() == Some("") {
            info!(month = month.name, rows = month.rows, "was copied before");
            copied += month.rows;
            continue;
        }
        loop {
            let piece = clickhouse.next_piece(month, after.as_deref().unwrap_or_default()).await?;
            clickhouse.copy(month, &piece).await?;
            copied += piece.rows;
            let seconds = began.elapsed().as_secs();
            info!(month = month.name, rows = copied, of = total, seconds, "copied");
            if piece.until.is_empty() {
                break;
            }
            after = Some(piece.until);
        }
    }
    Ok(())
}
