//! Asks ClickHouse how it is, on a connection of its own: whether it answers, whether the tables are there and as ours,
//! and whether its clock agrees with ours.
//!
//! A hanging insert says nothing until its timeout. A question says within seconds that the server is away, and that it is
//! back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::now_ms;
use crate::clickhouse::{ClickHouse, Error, Migration};
use crate::delivery::events::Schema;
use crate::delivery::sink::error_chain;
use crate::mqtt::driver::{Attention, ServerStatus};
use crate::peers::standing::Member;
use crate::pipeline::erased::Erased;

/// How often while all is well: a clock does not jump every minute.
pub(super) const EVERY: Duration = Duration::from_secs(30);
/// And while it is not.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(1);
/// A server that has not answered a question by then does not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The waiting is logged again after so many questions.
const QUESTIONS_PER_LOG_LINE: u32 = 30;

/// What is known before anybody has asked.
pub(super) fn unknown() -> ServerStatus {
    ServerStatus { schema: not_asked(), answers: Ok(()), clock_off: None, clock_jumps: 0 }
}

fn not_asked() -> Schema {
    Schema::Unknown("not asked yet".to_owned())
}

/// Returns when the tables are there, and ours.
///
/// # Errors
/// A migration was edited after it was applied.
pub(super) async fn until_ready(clickhouse: &ClickHouse) -> Result<()> {
    let mut waits = Waits::default();
    while let Schema::Unknown(why) | Schema::Refused(why) = tables(clickhouse, &not_asked()).await? {
        waits.tell(&why);
        sleep(ASK_EVERY).await;
    }
    Ok(())
}

/// The same without waiting.
///
/// # Errors
/// They are not, or the server does not answer.
pub(super) async fn ensure_ready(clickhouse: &ClickHouse) -> Result<()> {
    match tables(clickhouse, &not_asked()).await? {
        Schema::Ready => Ok(()),
        Schema::Unknown(why) | Schema::Refused(why) => bail!(why),
    }
}

/// Every migration of this binary is recorded: for commands that use other tables than `run` does, with other rights.
///
/// # Errors
/// They are not, or the server does not answer.
pub(super) async fn ensure_migrated(clickhouse: &ClickHouse) -> Result<()> {
    let pending = clickhouse.pending().await?;
    ensure!(pending.is_empty(), not_migrated(&pending));
    Ok(())
}

fn not_migrated(pending: &[Migration]) -> String {
    let names: Vec<_> = pending.iter().map(|migration| migration.name).collect();
    format!("not migrated: `milepost migrate` applies {}", names.join(", "))
}

/// See the module's documentation.
pub(super) struct Watcher {
    pub(super) clickhouse: Arc<ClickHouse>,
    pub(super) server: watch::Sender<ServerStatus>,
    /// Whose rows are left out; told before the tables are.
    pub(super) erased: watch::Sender<Arc<Erased>>,
    /// Tells others which list is in force.
    pub(super) member: Arc<Member>,
    pub(super) attention: watch::Receiver<Attention>,
    /// More is a reason to stop.
    pub(super) clocks_may_differ: Duration,
}

impl Watcher {
    /// Asks again and again; returns only if the tables can never be right.
    ///
    /// # Errors
    /// A migration was edited after it was applied.
    pub(super) async fn run(mut self) -> Result<Infallible> {
        let mut told = Told::default();
        loop {
            let asked_at = Instant::now();
            let attention = *self.attention.borrow_and_update();
            let mut server = self.server.borrow().clone();
            match self.answer().await {
                Ok(clock_off) => {
                    (server.answers, server.clock_off) = (Ok(()), clock_off);
                    server.clock_jumps = attention.clock_jumps;
                    server.schema = self.tables(&server.schema).await?;
                }
                Err(why) => {
                    if server.schema != Schema::Ready {
                        server.schema = Schema::Unknown(why.clone());
                    }
                    server.answers = Err(why);
                }
            }
            told.tell(&server);
            // Also an answer that is the same as the last one is one: somebody may have asked in between.
            self.server.send_replace(server);
            self.wait(asked_at, attention).await;
        }
    }

    /// Whether they are there, and whose rows do not go into them.
    async fn tables(&self, before: &Schema) -> Result<Schema> {
        let schema = tables(&self.clickhouse, before).await?;
        if schema != Schema::Ready {
            return Ok(schema);
        }
        match self.clickhouse.erased().await {
            Ok(erased) => {
                let erased = Arc::new(erased);
                let is_new = |known: &mut Arc<Erased>| {
                    let is_new = *known != erased;
                    if is_new {
                        *known = Arc::clone(&erased);
                    }
                    is_new
                };
                if self.erased.send_if_modified(is_new) {
                    info!(?erased, "what is to be erased is left out from now on");
                }
                self.member.erases(&self.erased.borrow());
                Ok(Schema::Ready)
            }
            Err(error) => Ok(refusal(&error, before)),
        }
    }

    /// Until it is time to ask again, or somebody has a reason to.
    async fn wait(&mut self, asked_at: Instant, answered: Attention) {
        loop {
            let Attention { is_doubtful, questions, clock_jumps } = *self.attention.borrow_and_update();
            let doubt = is_doubtful
                || self.server.borrow().answers.is_err()
                || self.server.borrow().schema != Schema::Ready;
            if (questions, clock_jumps) != (answered.questions, answered.clock_jumps) {
                return;
            }
            let until = asked_at + if doubt { ASK_EVERY } else { EVERY };
            tokio::select! {
                () = sleep_until(until) => return,
                changed = self.attention.changed() => if changed.is_err() {
                    return sleep_until(until).await; // the driver is gone: the process is ending
                },
            }
        }
    }

    /// Whether it answers; and why our clock is off, if it is.
    async fn answer(&self) -> Result<Option<String>, String> {
        let before = now_ms();
        let theirs = match timeout(ANSWER_WITHIN, self.clickhouse.clock()).await {
            Ok(Ok(theirs)) => theirs,
            Ok(Err(error)) => return Err(error_chain(&error)),
            Err(_) => return Err(format!("no answer to a question within {ANSWER_WITHIN:?}")),
        };
        // It was asked at some moment in between, however long that took.
        let difference_ms = theirs - theirs.max(before).min(now_ms());
        let difference = Duration::from_millis(difference_ms.unsigned_abs());
        let is_off = difference > self.clocks_may_differ;
        Ok(is_off.then(|| {
            let direction = if difference_ms >= 0 { "ahead of" } else { "behind" };
            format!(
                "ClickHouse's clock is {difference:.0?} {direction} ours, more than decode.fix_future_max: nothing is \
                 taken until they agree; let both hosts follow NTP"
            )
        }))
    }
}

/// Rows inserted before a view exists never reach it, and other columns would take other numbers for ours.
async fn tables(clickhouse: &ClickHouse, before: &Schema) -> Result<Schema> {
    match clickhouse.pending().await {
        Ok(pending) if pending.is_empty() => {}
        Ok(pending) => return Ok(Schema::Refused(not_migrated(&pending))),
        Err(error @ Error::Edited { .. }) if *before != Schema::Ready => bail!(error),
        Err(error) => return Ok(refusal(&error, before)),
    }
    // Who is late leaves the last answer in force: nothing else waits for it.
    let _ = timeout(ANSWER_WITHIN, clickhouse.count_replicas()).await;
    match clickhouse.misfits().await {
        Ok(misfits) if misfits.is_empty() => Ok(Schema::Ready),
        Ok(misfits) => Ok(Schema::Refused(format!(
            "the tables are not those of this version: {}; restore them, or run the milepost that they are for",
            misfits.join(", ")
        ))),
        Err(error) => Ok(refusal(&error, before)),
    }
}

/// A question that nobody answered changes nothing: the inserts will tell.
fn refusal(error: &Error, before: &Schema) -> Schema {
    if !error.may_pass() {
        Schema::Refused(error_chain(error))
    } else if *before == Schema::Ready {
        Schema::Ready
    } else {
        Schema::Unknown(error_chain(error))
    }
}

/// How often somebody has asked in vain.
#[derive(Default)]
pub(super) struct Waits(u32);

impl Waits {
    /// Logs the first time, and every so often again.
    pub(super) fn tell(&mut self, why: &str) {
        if self.0.is_multiple_of(QUESTIONS_PER_LOG_LINE) {
            warn!(why, "waiting for ClickHouse");
        }
        self.0 += 1;
    }
}

/// What was logged, so that it is logged once.
#[derive(Default)]
struct Told {
    silent: bool,
    waits: Waits,
    clock_off: bool,
    open: bool,
}

impl Told {
    fn tell(&mut self, server: &ServerStatus) {
        match &server.schema {
            Schema::Ready => {
                self.waits = Waits::default();
                if !std::mem::replace(&mut self.open, true) {
                    info!("ClickHouse answers, and the tables are as they should be");
                }
            }
            Schema::Unknown(why) | Schema::Refused(why) => {
                self.open = false;
                self.waits.tell(why);
            }
        }
        let silent = server.schema == Schema::Ready && server.answers.is_err();
        match (&server.answers, std::mem::replace(&mut self.silent, silent)) {
            (Err(why), false) if silent => warn!(why, "ClickHouse does not answer"),
            (Ok(()), true) => info!("ClickHouse answers again"),
            (Err(_) | Ok(()), _) => {}
        }
        match (&server.clock_off, std::mem::replace(&mut self.clock_off, server.clock_off.is_some())) {
            (Some(why), false) => warn!("{why}"),
            (None, true) => info!("the clocks agree again"),
            (Some(_) | None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_outage_is_told_at_once() {
        let mut told = Told::default();
        let waiting = unknown();
        told.tell(&waiting);
        told.tell(&waiting);
        assert_eq!(told.waits.0, 2);
        told.tell(&ServerStatus { schema: Schema::Ready, ..unknown() });
        assert_eq!(told.waits.0, 0, "the next question that is not answered is the first of its outage");
    }
}
