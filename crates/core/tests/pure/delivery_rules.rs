//! Tests the rules by which a batch is inserted, retried, stored, replayed, deferred or put into
//! quarantine. The tests run the policy against a scripted server, whose answer depends on the name
//! of the batch or file.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use milepost_core::batch::Batch;
use milepost_core::delivery::events::{
    BatchId, DeliveryCommand, DeliveryNotice, Loaded, Outcome, Piece, Report, Schema, ServerStatus,
};
use milepost_core::delivery::policy::{Delivery, DeliveryConfig, Demand};
use milepost_core::delivery::sink::FailureKind;
use milepost_core::delivery::{File, SpoolInventory};
use milepost_decode::reject::Reason;

use crate::rows::{policy_settings, position, reject};

const TIMEOUT: Duration = Duration::from_secs(60);

type Rule = Box<dyn Fn(&str, &Piece) -> Result<(), FailureKind>>;

/// The policy, with a scripted server and disk. The server answers each insert by `rule` after
/// `insert_duration`; an insert that times out takes the whole timeout. A file whose name contains
/// `foreign` has columns of another version. A batch with the name `erased` has only rows of erased
/// drivers.
struct Rig {
    policy: Delivery,
    insert_duration: Duration,
    status: ServerStatus,
    rule: Rule,
    now: Instant,
    began: Instant,
    /// Name and number of rows of each batch.
    names: BTreeMap<BatchId, (String, usize)>,
    /// Name and piece that each deduplication token was used for.
    tokens: BTreeMap<String, (String, Piece)>,
    /// Name of each file, and its number of rows or why it cannot be replayed.
    files: BTreeMap<File, (String, Result<usize, &'static str>)>,
    /// Future reports, each with its time.
    pending: Vec<(Instant, Report)>,
    /// Batch name of each inserted piece, in order.
    inserted: Vec<String>,
    durable: BTreeSet<BatchId>,
    notices: Vec<DeliveryNotice>,
    /// Number of rows in quarantine.
    quarantined: usize,
    next_batch: BatchId,
    disk_is_full: bool,
    disk_hangs: bool,
    /// Number of disk operations that hang.
    hanging: usize,
    /// Size of the next batch, in bytes.
    batch_bytes: usize,
    /// Number of attempts sent to the server.
    attempts: usize,
}

fn rig(
    settings: DeliveryConfig,
    rule: impl Fn(&str, &Piece) -> Result<(), FailureKind> + 'static,
) -> Rig {
    with_files(settings, &[], rule)
}

/// Builds a rig whose spool has files of these names, each of ten rows.
fn with_files(
    settings: DeliveryConfig,
    names: &[String],
    rule: impl Fn(&str, &Piece) -> Result<(), FailureKind> + 'static,
) -> Rig {
    let file = |(sequence, name): (u64, &String)| {
        (File { sequence, positions: 10, tag: 1, bytes: 100 }, (name.clone(), Ok(10)))
    };
    let files: BTreeMap<_, _> = (0..).zip(names).map(file).collect();
    let inventory = SpoolInventory {
        files: files.keys().copied().collect(),
        quarantined_bytes: 0,
        files_quarantined: 0,
    };
    let now = Instant::now();
    let mut policy = Delivery::new(settings, inventory);
    policy.handle_server_status(ServerStatus::ready(), now);
    Rig {
        policy,
        insert_duration: Duration::from_millis(20),
        status: ServerStatus::ready(),
        rule: Box::new(rule),
        now,
        began: now,
        names: BTreeMap::new(),
        tokens: BTreeMap::new(),
        files,
        pending: Vec::new(),
        inserted: Vec::new(),
        durable: BTreeSet::new(),
        notices: Vec::new(),
        quarantined: 0,
        next_batch: 0,
        disk_is_full: false,
        disk_hangs: false,
        hanging: 0,
        batch_bytes: 1 << 20,
        attempts: 0,
    }
}

fn spooling() -> DeliveryConfig {
    DeliveryConfig { has_spool: true, ..policy_settings() }
}

impl Rig {
    /// Reports the result of a schema check that has just run.
    fn report_schema(&mut self, schema: Schema) {
        self.status.schema = schema;
        self.status.refusals = self.policy.watcher_request(self.now).refusals;
        self.policy.handle_server_status(self.status.clone(), self.now);
    }

    /// Reports whether ClickHouse answers queries.
    fn report_query_result(&mut self, answers: Result<(), String>) {
        self.status.answers = answers;
        self.policy.handle_server_status(self.status.clone(), self.now);
    }

    /// Offers a batch of QoS 1 messages with this many rows. Returns its id; `None` if there is no
    /// demand.
    fn offer(&mut self, name: &str, rows: u32) -> Option<BatchId> {
        self.offer_batch(name, rows, true)
    }

    /// Like [`offer`](Self::offer), for QoS 0 messages.
    fn offer_at_most_once(&mut self, name: &str, rows: u32) -> Option<BatchId> {
        self.offer_batch(name, rows, false)
    }

    fn offer_batch(&mut self, name: &str, rows: u32, at_least_once: bool) -> Option<BatchId> {
        if self.policy.demand(self.now) == Demand::Nothing {
            return None;
        }
        let id = self.next_batch;
        self.next_batch += 1;
        let positions: Vec<_> = (0..rows).map(|seq| position(name, seq)).collect();
        let batch = Batch {
            id,
            bytes: self.batch_bytes,
            positions,
            at_least_once,
            opened_at: Some(self.now),
            ..Batch::default()
        };
        self.names.insert(id, (name.to_owned(), rows as usize));
        self.policy.accept(batch, self.now);
        self.execute();
        Some(id)
    }

    fn report(&mut self, batch: BatchId, outcome: Outcome) {
        self.policy.handle_report(Report { batch, outcome }, self.now);
    }

    fn report_later(&mut self, millis: u64, batch: BatchId, outcome: Outcome) {
        self.pending.push((self.now + Duration::from_millis(millis), Report { batch, outcome }));
    }

    /// Executes all commands: decides their reports, and when the policy gets them.
    fn execute(&mut self) {
        while let Some(command) = self.policy.poll_command() {
            match command {
                DeliveryCommand::Encode(_) => {}
                DeliveryCommand::Forget(batch) => drop(self.names.remove(&batch)),
                DeliveryCommand::Attempt { batch, piece, attempt } => {
                    self.attempts += 1;
                    let (name, rows) = self.names[&batch].clone();
                    assert!(piece.rows.end <= rows);
                    let target = (name.clone(), piece.clone());
                    let used_for =
                        self.tokens.entry(attempt.token).or_insert_with(|| target.clone());
                    // ClickHouse drops a second insert with the same token.
                    assert!(
                        *used_for == target || name == "erased",
                        "{target:?} sent with the token of {used_for:?}"
                    );
                    let took = self.insert_duration;
                    // Rows with unknown columns can only be inserted all together.
                    let is_inseparable = name.contains("foreign") && piece.rows.len() < rows;
                    let outcome = match (self.rule)(&name, &piece) {
                        _ if is_inseparable => Outcome::UnknownColumns,
                        _ if name == "erased" => Outcome::LeftOut { rows: piece.rows.len() as u64 },
                        Ok(()) => Outcome::Inserted { took, erased: 0 },
                        Err(kind) => Outcome::Failed { kind, why: format!("{kind:?}") },
                    };
                    let timed_out =
                        matches!(outcome, Outcome::Failed { kind: FailureKind::TimedOut, .. });
                    let duration = if timed_out { attempt.timeout } else { took };
                    self.report_later(u64::try_from(duration.as_millis()).unwrap(), batch, outcome);
                }
                DeliveryCommand::Abort(batch) => {
                    let attempt =
                        self.pending.iter_mut().find(|(_, report)| report.batch == batch).unwrap();
                    let outcome =
                        Outcome::Failed { kind: FailureKind::Ambiguous, why: "aborted".to_owned() };
                    *attempt = (self.now, Report { batch, outcome });
                }
                DeliveryCommand::Store(_)
                | DeliveryCommand::Load(..)
                | DeliveryCommand::QuarantineRow(..)
                    if self.disk_hangs =>
                {
                    self.hanging += 1;
                }
                DeliveryCommand::Store(batch) | DeliveryCommand::QuarantineRow(batch, _)
                    if self.disk_is_full =>
                {
                    self.report_later(10, batch, Outcome::Refused("full".to_owned()));
                }
                DeliveryCommand::Store(batch) => {
                    let sequence = self.files.keys().last().map_or(0, |file| file.sequence + 1);
                    let (name, rows) = self.names[&batch].clone();
                    let file = File { sequence, positions: rows as u64, tag: 1, bytes: 100 };
                    self.files.insert(file, (name, Ok(rows)));
                    self.report_later(10, batch, Outcome::Stored(file));
                }
                DeliveryCommand::Load(batch, file) => {
                    let loaded = match self.files.get(&file).cloned() {
                        Some((name, Ok(rows))) => {
                            self.names.insert(batch, (name, rows));
                            Loaded::Rows(vec![rows])
                        }
                        Some((_, Err("newer"))) => Loaded::Newer("format version 2".to_owned()),
                        Some((_, Err("damaged"))) => Loaded::Damaged("truncated".to_owned()),
                        Some((_, Err(why))) => Loaded::Unreadable(why.to_owned()),
                        None => Loaded::Gone,
                    };
                    self.report_later(5, batch, Outcome::Loaded(loaded));
                }
                DeliveryCommand::Remove(batch, file) => {
                    self.files.remove(&file);
                    self.report_later(5, batch, Outcome::Removed);
                }
                DeliveryCommand::Quarantine(batch, _) => {
                    self.report_later(5, batch, Outcome::Quarantined)
                }
                DeliveryCommand::QuarantineRow(batch, piece) => {
                    self.quarantined += piece.rows.len();
                    let file = File { sequence: 1 << 60, positions: 1, tag: 1, bytes: 7 };
                    self.report_later(5, batch, Outcome::RowQuarantined(file));
                }
            }
        }
        while let Some(durable) = self.policy.poll_durable() {
            assert!(self.durable.insert(durable.batch), "a batch was reported as durable twice");
        }
        self.notices.extend(std::iter::from_fn(|| self.policy.poll_notice()));
    }

    /// Advances time, with a step at each deadline of the policy and at each report.
    fn wait(&mut self, duration: Duration) {
        let until = self.now + duration;
        loop {
            self.policy.handle_timeout(self.now);
            self.execute();
            let due = self
                .pending
                .iter()
                .map(|(at, _)| *at)
                .chain(self.policy.poll_timeout(self.now))
                .min();
            let Some(at) = due.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            while let Some(index) = self.pending.iter().position(|(at, _)| *at <= self.now) {
                let (_, report) = self.pending.remove(index);
                if let Outcome::Inserted { .. } = report.outcome {
                    self.inserted.push(self.names[&report.batch].0.clone());
                }
                self.policy.handle_report(report, self.now);
                self.execute();
            }
        }
        self.now = until;
        self.policy.handle_timeout(self.now);
        self.execute();
    }

    /// Waits until this many pieces are inserted in all. Returns how long that took.
    fn wait_for_inserted(&mut self, count: usize) -> Duration {
        let began = self.now;
        while self.inserted.len() < count {
            self.wait(Duration::from_millis(50));
            assert!(
                self.now < began + Duration::from_secs(7_200),
                "{} of {count} inserted",
                self.inserted.len()
            );
        }
        self.now - began
    }

    fn unready(&self) -> String {
        self.policy.unready_reasons(self.now).join("; ")
    }

    fn has_notice(&self, matches: impl Fn(&DeliveryNotice) -> bool) -> bool {
        self.notices.iter().any(matches)
    }

    /// Makes a file unreplayable for this reason.
    fn break_file(&mut self, file: File, reason: &'static str) {
        let (_, rows) = self.files.get_mut(&file).unwrap();
        *rows = Err(reason);
    }
}

/// Returns the names `bad0`, `bad1`, …, and then `good0`, `good1`, ….
fn names(bad: usize, good: usize) -> Vec<String> {
    let bad_names = (0..bad).map(|index| format!("bad{index}"));
    bad_names.chain((0..good).map(|index| format!("good{index}"))).collect()
}

#[test]
fn insert_logs_its_success_only_after_a_failure() {
    let failures_left = Cell::new(2);
    let mut rig = rig(policy_settings(), move |name, _| {
        let fails = name == "bad" && failures_left.get() > 0;
        failures_left.set(failures_left.get() - u32::from(fails));
        if fails { Err(FailureKind::Transient) } else { Ok(()) }
    });
    rig.offer("good", 1).unwrap();
    rig.wait_for_inserted(1);
    assert!(!rig.has_notice(|notice| matches!(notice, DeliveryNotice::InsertSucceeded { .. })));
    let id = rig.offer("bad", 1).unwrap();
    rig.wait_for_inserted(2);
    let line = format!("insert succeeded after 2 failures, batch {id}");
    assert!(rig.has_notice(|notice| notice.to_string() == line), "{:?}", rig.notices);
}

#[test]
fn erased_positions_are_counted_and_erased_rejects_are_not() {
    let mut policy = rig(policy_settings(), |_, _| Ok(())).policy;
    let now = Instant::now();
    for (id, positions, rejects) in [(1, 3, 0), (2, 3, 2), (3, 0, 2)] {
        let batch = Batch {
            id,
            positions: (0..positions).map(|seq| position("d", seq)).collect(),
            rejects: (0..rejects).map(|_| reject(Reason::Empty, 0)).collect(),
            ..Batch::default()
        };
        policy.accept(batch, now);
        while let Some(command) = policy.poll_command() {
            if let DeliveryCommand::Attempt { batch, .. } = command {
                policy.handle_report(
                    Report {
                        batch,
                        outcome: Outcome::Inserted { took: Duration::ZERO, erased: 2 },
                    },
                    now,
                );
            }
        }
    }
    let totals = policy.totals();
    assert_eq!((totals.inserted, totals.erased), (2, 4));
}

#[test]
fn fully_erased_batch_is_durable_and_server_health_unchanged() {
    let mut rig = rig(policy_settings(), |_, _| Err(FailureKind::Transient));
    rig.offer("d", 1).unwrap();
    rig.wait(Duration::from_secs(30));
    let unready = rig.unready();
    assert!(unready.contains("no insert gets through"), "{unready}");
    let id = rig.offer("erased", 10).unwrap();
    rig.wait(Duration::from_millis(50));
    assert!(rig.durable.contains(&id));
    let totals = rig.policy.totals();
    assert_eq!((totals.inserted, totals.erased), (0, 10));
    assert_eq!(rig.unready(), unready);
    assert!(rig.policy.watcher_request(rig.now).in_doubt);
}

#[test]
fn failure_is_cleared_when_its_batch_is_fully_erased() {
    let mut rig = rig(policy_settings(), |_, _| Err(FailureKind::Transient));
    let id = rig.offer("d", 1).unwrap();
    rig.wait(Duration::from_secs(30));
    assert!(rig.unready().contains("no insert gets through"), "{}", rig.unready());
    let (name, _) = rig.names.get_mut(&id).unwrap();
    *name = "erased".to_owned();
    rig.wait(Duration::from_secs(10));
    assert!(rig.durable.contains(&id));
    assert_eq!(rig.unready(), "");
    assert!(!rig.policy.watcher_request(rig.now).in_doubt);
}

#[test]
fn failed_file_that_disappears_is_not_retried() {
    let mut rig = with_files(spooling(), &names(1, 0), |_, _| Err(FailureKind::Transient));
    rig.wait(Duration::from_millis(50));
    rig.files.clear();
    rig.wait(Duration::from_secs(60));
    assert_eq!(rig.policy.totals().files_quarantined, 1);
    assert_eq!(rig.unready(), "");
}

#[test]
fn batch_that_clickhouse_refused_is_spooled_once_clickhouse_is_down() {
    let mut rig = rig(spooling(), |_, _| Err(FailureKind::Permanent));
    let id = rig.offer("d", 1).unwrap();
    rig.wait(Duration::from_secs(60));
    assert!(rig.durable.is_empty(), "not spooled, because an operator must fix the fault");
    rig.report_query_result(Err("no answer".to_owned()));
    rig.wait(Duration::from_secs(60));
    assert!(rig.durable.contains(&id));
}

#[test]
fn spool_refusals_are_not_counted_as_stored_and_do_not_flood_the_log() {
    let mut rig = rig(spooling(), |_, _| Err(FailureKind::Transient));
    rig.disk_is_full = true;
    rig.offer("d", 1).unwrap();
    rig.wait(Duration::from_secs(120));
    assert_eq!(rig.policy.totals().stored.iter().sum::<u64>(), 0);
    let failed =
        rig.notices.iter().filter(|notice| matches!(notice, DeliveryNotice::InsertFailed { .. }));
    assert!((1..=13).contains(&failed.count()));
    rig.disk_is_full = false;
    rig.wait(Duration::from_secs(10));
    assert_eq!(rig.policy.totals().stored.iter().sum::<u64>(), 1);
}

#[test]
fn failing_batch_does_not_stop_other_batches() {
    for kind in [FailureKind::Transient, FailureKind::Ambiguous, FailureKind::TimedOut] {
        let mut rig =
            rig(spooling(), move |name, _| if name == "poison" { Err(kind) } else { Ok(()) });
        let mut sent_directly = 0;
        for index in 0..50 {
            let name = if index == 0 { "poison".to_owned() } else { format!("d{index}") };
            while rig.offer(&name, 1).is_none() {
                rig.wait(Duration::from_millis(100));
            }
            let before = rig.files.len();
            rig.wait(Duration::from_secs(1));
            sent_directly += u32::from(index > 0 && rig.files.len() <= before);
        }
        let took = rig.wait_for_inserted(49);
        assert!(
            sent_directly > 40,
            "{kind:?}: only {sent_directly} of 49 batches went directly to the server"
        );
        assert!(took < 4 * TIMEOUT, "{kind:?}: the others waited {took:?}");
        rig.wait(Duration::from_secs(60));
        assert_eq!(rig.files.len(), 1);
        assert_eq!(rig.durable.len(), 50);
    }
}

#[test]
fn other_batches_are_not_spooled_until_the_spool_has_a_file() {
    let rule =
        |name: &str, _: &Piece| if name == "bad" { Err(FailureKind::Transient) } else { Ok(()) };
    let mut rig = rig(spooling(), rule);
    rig.disk_hangs = true;
    rig.offer("bad", 1).unwrap();
    rig.wait(Duration::from_millis(50));
    assert_eq!(rig.hanging, 1);
    let good = rig.offer("good", 1).unwrap();
    rig.wait(Duration::from_millis(50));
    assert!(rig.hanging == 1 && rig.durable.contains(&good), "{:?}", rig.notices);
}

#[test]
fn replay_takes_no_slot_from_fresh_batches() {
    let mut rig = with_files(spooling(), &names(0, 1), |_, _| Ok(()));
    rig.insert_duration = Duration::from_secs(1);
    rig.wait(Duration::from_millis(100));
    assert_eq!(rig.attempts, 1);
    (0..2).for_each(|_| assert!(rig.offer("d", 1).is_some()));
    assert_eq!(rig.attempts, 3);
}

#[test]
fn three_failures_in_a_row_make_the_process_unready() {
    let fails = |_: &str, _: &Piece| Err(FailureKind::Transient);
    let mut fresh = rig(policy_settings(), fails);
    fresh.offer("d", 1).unwrap();
    for mut rig in [fresh, with_files(spooling(), &names(5, 0), fails)] {
        while rig.unready().is_empty() {
            rig.wait(Duration::from_millis(10));
        }
        assert_eq!(rig.attempts, 3);
    }
}

#[test]
fn failing_oldest_file_does_not_block_replay_without_fresh_batches() {
    let rule = |name: &str, _: &Piece| {
        if name.contains("bad") { Err(FailureKind::Transient) } else { Ok(()) }
    };
    let took = with_files(spooling(), &names(1, 20), rule).wait_for_inserted(20);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn spool_files_that_clickhouse_refuses_do_not_delay_other_files() {
    let rule = |name: &str, _: &Piece| {
        if name.contains("bad") { Err(FailureKind::Permanent) } else { Ok(()) }
    };
    let mut rig = with_files(spooling(), &names(30, 30), rule);
    let began = rig.now;
    while rig.inserted.len() < 30 {
        rig.wait(Duration::from_millis(200));
        rig.report_schema(Schema::Ready); // a repeated check finds all tables
        assert!(rig.now < began + Duration::from_secs(180));
    }
    assert!(rig.unready().contains("Permanent"), "{}", rig.unready());
    rig.rule = Box::new(|_, _| Ok(()));
    rig.report_schema(Schema::Ready);
    let took = rig.wait_for_inserted(60);
    assert!(took < Duration::from_secs(60), "inserted {took:?} after the repair");
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.unready(), "");
}

#[test]
fn unreadable_file_is_reported_and_does_not_delay_others() {
    let mut rig = with_files(spooling(), &names(1, 60), |_, _| Ok(()));
    let oldest = *rig.files.keys().next().unwrap();
    rig.break_file(oldest, "input/output error");
    let took = rig.wait_for_inserted(60);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(rig.unready().contains("input/output error"), "{}", rig.unready());
    assert_eq!(rig.policy.totals().in_spool, 10);
}

#[test]
fn lost_spool_disk_is_not_logged_once_per_file() {
    let mut rig = with_files(spooling(), &names(0, 1_000), |_, _| Ok(()));
    rig.files.values_mut().for_each(|(_, rows)| *rows = Err("no such directory"));
    rig.wait(Duration::from_secs(600));
    let lines = rig
        .notices
        .iter()
        .filter(|notice| matches!(notice, DeliveryNotice::Deferred { .. }))
        .count();
    assert!((50..=300).contains(&lines), "{lines} lines in ten minutes");
    rig.files.values_mut().for_each(|(_, rows)| *rows = Ok(10));
    let took = rig.wait_for_inserted(1_000);
    assert!(took < Duration::from_secs(60), "inserted {took:?} after the repair");
}

#[test]
fn files_replay_in_turn_and_an_empty_spool_is_ready() {
    let mut rig = with_files(spooling(), &names(0, 5), |_, _| Err(FailureKind::Transient));
    rig.wait(Duration::from_secs(20));
    assert_ne!(rig.unready(), "");
    rig.rule = Box::new(|_, _| Ok(()));
    rig.wait_for_inserted(5);
    rig.wait(Duration::from_millis(100));
    // While every insert fails, all files are tried in turn.
    let order: String = rig.inserted.iter().map(|name| name.trim_start_matches("good")).collect();
    assert!("0123401234".contains(&order) && order.len() == 5, "{order}");
    assert_eq!(rig.unready(), "");
    rig.wait(Duration::from_secs(1));
    let emptied =
        rig.notices.iter().filter(|notice| matches!(notice, DeliveryNotice::SpoolEmpty { .. }));
    assert_eq!(emptied.collect::<Vec<_>>(), [&DeliveryNotice::SpoolEmpty { batches: 5 }]);
    let succeeded = rig
        .notices
        .iter()
        .filter(|notice| matches!(notice, DeliveryNotice::InsertSucceeded { .. }));
    let lines: Vec<_> = succeeded.map(DeliveryNotice::to_string).collect();
    assert!(
        lines.len() == 5 && lines.iter().all(|line| line.ends_with(", a batch from the spool")),
        "{lines:?}"
    );
    assert_eq!(rig.policy.totals().batches_inserted, 5);
    assert_eq!((rig.policy.totals().inserted, rig.policy.totals().in_spool), (50, 0));
}

#[test]
fn damaged_and_missing_spool_files_count_as_quarantined_newer_ones_wait() {
    let mut rig = with_files(spooling(), &names(3, 1), |_, _| Ok(()));
    let files: Vec<File> = rig.files.keys().copied().collect();
    rig.break_file(files[0], "damaged");
    rig.break_file(files[1], "newer");
    rig.files.remove(&files[2]);
    rig.wait_for_inserted(1);
    rig.wait(Duration::from_secs(60));
    let totals = rig.policy.totals();
    assert_eq!((totals.quarantined, totals.in_spool, totals.inserted), (20, 10, 10));
    assert_eq!(
        (totals.files_quarantined, totals.spool_quarantined, totals.spool_bytes),
        (2, 1, 200)
    );
    assert_eq!(totals.spool_batches, 1);
    assert!(
        rig.has_notice(
            |notice| matches!(notice, DeliveryNotice::Gone(file) if file.positions == 10)
        )
    );
    assert!(rig.unready().contains("format version 2"), "{}", rig.unready());
    assert!(!rig.policy.has_batches_to_deliver());
}

#[test]
fn permanent_failure_holds_qos_1_and_spools_qos_0() {
    let mut rig = rig(spooling(), |_, _| Err(FailureKind::Permanent));
    rig.policy.set_under_pressure(true);
    let at_least_once = rig.offer("d1", 1).unwrap();
    rig.wait(Duration::from_secs(300));
    assert!(rig.durable.is_empty(), "not acknowledged, even under pressure");
    assert!(rig.policy.watcher_request(rig.now).refusals > 0, "the tables must be checked again");
    let at_most_once = rig.offer_at_most_once("d2", 1).unwrap();
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.durable, BTreeSet::from([at_most_once]));
    rig.rule = Box::new(|_, _| Ok(()));
    rig.wait(Duration::from_secs(10));
    assert!(!rig.durable.contains(&at_least_once), "the tables have not been checked yet");
    rig.report_schema(Schema::Ready);
    rig.wait(Duration::from_secs(10));
    assert!(rig.durable.contains(&at_least_once));
}

#[test]
fn table_check_from_before_a_refused_insert_is_stale() {
    let mut rig = rig(policy_settings(), |_, _| Err(FailureKind::Permanent));
    rig.offer("d", 1).unwrap();
    let earlier_status = rig.status.clone();
    rig.wait(Duration::from_secs(1));
    rig.rule = Box::new(|_, _| Ok(())); // the table exists again, but its views may not
    rig.policy.handle_server_status(earlier_status, rig.now);
    rig.wait(Duration::from_secs(10));
    assert_eq!(rig.inserted.len(), 0);
    rig.report_schema(Schema::Ready);
    rig.wait_for_inserted(1);
}

#[test]
fn inserts_wait_for_the_tables() {
    for (schema, spooled) in [
        (Schema::Refused("not migrated".to_owned()), 0),
        (Schema::Unknown("no answer".to_owned()), 1),
    ] {
        let mut rig = rig(spooling(), |_, _| Ok(()));
        rig.report_schema(schema);
        rig.offer("d", 1).unwrap();
        rig.wait(Duration::from_secs(300));
        assert_eq!(
            (rig.inserted.len(), rig.durable.len()),
            (0, spooled),
            "spooled only if the check had no answer; otherwise an operator must act"
        );
        rig.report_schema(Schema::Ready);
        rig.wait_for_inserted(1);
        rig.wait(Duration::from_secs(1));
        assert_eq!(rig.durable.len(), 1);
    }
}

#[test]
fn slow_inserts_under_pressure_are_acked_from_the_spool() {
    let mut rig = rig(spooling(), |_, _| Err(FailureKind::TimedOut));
    for (name, free_slots) in [("a", 2), ("b", 1)] {
        assert_eq!(rig.policy.demand(rig.now), Demand::ToInsert(free_slots));
        rig.offer(name, 1).unwrap();
    }
    assert_eq!(rig.offer("c", 1), None);
    rig.wait(Duration::from_secs(1));
    assert!(rig.durable.is_empty(), "no pressure: the inserts may still commit");
    assert_eq!(rig.policy.demand(rig.now), Demand::Nothing);
    rig.policy.set_under_pressure(true);
    rig.wait(Duration::from_millis(50));
    assert_eq!(rig.durable.len(), 2, "spooled while they are being inserted");
    let counts = |rig: &Rig| {
        let totals = rig.policy.totals();
        (totals.in_flight, totals.in_spool, totals.spool_batches)
    };
    assert_eq!(counts(&rig), (2, 0, 0), "no file waits: the inserts may still succeed");
    assert_eq!(rig.policy.demand(rig.now), Demand::ToStore);
    rig.offer("c", 1).unwrap();
    rig.wait(Duration::from_millis(50));
    assert_eq!(
        (rig.durable.len(), rig.files.len()),
        (3, 3),
        "the batch that waits for a slot is spooled too"
    );
    for because in ["an insert is slow, and", "all inserts are busy, at least one is slow, and"] {
        let line = format!("batches go to the spool: {because}");
        assert!(
            rig.has_notice(|notice| notice.to_string().starts_with(&line)),
            "{:?}",
            rig.notices
        );
    }
}

#[test]
fn slow_insert_is_noticed_after_250_ms_if_it_may_be_spooled() {
    for (has_spool, under_pressure) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let mut rig = rig(DeliveryConfig { has_spool, ..policy_settings() }, |_, _| Ok(()));
        rig.policy.set_under_pressure(under_pressure);
        rig.offer("d", 1).unwrap();
        let after_100_ms = rig.began + Duration::from_millis(100);
        let checked_after = rig.policy.poll_timeout(after_100_ms).unwrap() - rig.began;
        assert_eq!(checked_after < Duration::from_millis(350), has_spool && under_pressure);
    }
}

#[test]
fn hung_server_is_reported_in_seconds_and_recovery_at_once() {
    let mut rig = rig(policy_settings(), |_, _| Err(FailureKind::TimedOut));
    let id = rig.offer("d", 1).unwrap();
    rig.wait(Duration::from_secs(6));
    assert!(
        rig.has_notice(|notice| matches!(notice, DeliveryNotice::NoAnswer { .. })),
        "{:?}",
        rig.notices
    );
    assert_eq!(rig.unready(), "");
    rig.report_query_result(Err("no answer".to_owned()));
    rig.wait(Duration::from_secs(20));
    assert!(rig.unready().contains("no answer"), "{}", rig.unready());
    rig.rule = Box::new(|_, _| Ok(()));
    rig.report_query_result(Ok(()));
    rig.wait(Duration::from_secs(1));
    assert!(rig.durable.contains(&id), "the hanging insert is aborted");
    assert_eq!(rig.unready(), "");
}

#[test]
fn flapping_health_aborts_an_insert_only_once() {
    let mut rig = rig(policy_settings(), |_, _| Ok(()));
    rig.rule = Box::new(|_, _| Err(FailureKind::TimedOut)); // the insert takes a minute
    let id = rig.offer("d", 1).unwrap();
    rig.wait(Duration::from_secs(1));
    for _ in 0..10 {
        rig.report_query_result(Err("no answer".to_owned()));
        rig.wait(Duration::from_secs(2));
        rig.report_query_result(Ok(()));
        rig.wait(Duration::from_secs(2));
    }
    let aborted = rig.notices.iter().filter(
        |notice| matches!(notice, DeliveryNotice::InsertFailed { why, .. } if why == "aborted"),
    );
    assert_eq!(aborted.count(), 1, "aborted once, not after every unanswered query");
    assert!(!rig.durable.contains(&id));
}

#[test]
fn oversized_insert_is_split_and_later_batches_are_smaller() {
    let rule = |_: &str, piece: &Piece| {
        if piece.rows.len() > 10 { Err(FailureKind::TooLarge) } else { Ok(()) }
    };
    let mut rig = rig(spooling(), rule);
    let id = rig.offer("d", 100).unwrap();
    rig.wait(Duration::from_secs(2));
    assert!(rig.durable.contains(&id));
    assert_eq!(rig.inserted.len(), 16, "halved until it fits");
    assert_eq!(rig.policy.batch_bytes_max(), Some(1 << 19));
    assert!(rig.unready().is_empty(), "{}", rig.unready());
    assert_eq!(rig.policy.totals().inserted, 100);
    for (bytes, bytes_max) in [(1 << 22, 1 << 19), (1 << 18, 1 << 18)] {
        let logged = rig
            .notices
            .iter()
            .filter(|notice| matches!(notice, DeliveryNotice::TooLarge { .. }))
            .count();
        assert_eq!(logged, 1, "logged once, not for each half or for a later larger batch");
        rig.batch_bytes = bytes;
        rig.offer("d", 100).unwrap();
        rig.wait(Duration::from_secs(2));
        assert_eq!(rig.policy.batch_bytes_max(), Some(bytes_max));
    }
}

#[test]
fn batches_grow_again_after_ten_minutes_without_a_refusal() {
    let rule = |_: &str, piece: &Piece| {
        if piece.rows.len() > 10 { Err(FailureKind::TooLarge) } else { Ok(()) }
    };
    let mut rig = rig(spooling(), rule);
    for bytes in [1 << 22, 1 << 20] {
        rig.batch_bytes = bytes;
        rig.offer("d", 100).unwrap();
        rig.wait(Duration::from_secs(2));
    }
    rig.wait(Duration::from_secs(590));
    rig.offer("d", 100).unwrap(); // refused, so the ten minutes begin anew
    let bounds = [(); 6].map(|()| {
        rig.wait(Duration::from_secs(301));
        rig.policy.batch_bytes_max()
    });
    let [low, middle, high] = [1 << 19, 1 << 20, 1 << 21].map(Some);
    assert_eq!(bounds, [low, middle, middle, high, high, None], "none: the configured size");
    rig.offer("d", 100).unwrap();
    rig.wait(Duration::from_secs(2));
    assert_eq!(rig.policy.batch_bytes_max(), low);
}

#[test]
fn oversized_row_waits_while_its_batch_is_being_stored() {
    let mut rig = rig(spooling(), |_, _| Err(FailureKind::TooLarge));
    rig.policy.set_under_pressure(true);
    // The insert ends while the batch is being written: the write begins at 250 ms, and is refused
    // at 260 ms.
    rig.insert_duration = Duration::from_millis(255);
    rig.disk_is_full = true;
    rig.offer("d", 1).unwrap();
    rig.wait(Duration::from_secs(5));
    assert_eq!((rig.attempts, rig.policy.totals().refused), (1, 1));
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.attempts, 2);
}

#[test]
fn only_the_oversized_row_goes_into_quarantine() {
    for row in [7, 9] {
        let rule = move |_: &str, piece: &Piece| {
            if piece.rows.contains(&row) { Err(FailureKind::TooLarge) } else { Ok(()) }
        };
        for mut rig in [rig(spooling(), rule), with_files(spooling(), &names(0, 1), rule)] {
            rig.offer("d", 10).unwrap();
            rig.wait(Duration::from_secs(30));
            let batches = usize::from(rig.policy.totals().spool_at_start > 0) + 1;
            let totals = rig.policy.totals();
            assert_eq!((rig.quarantined, totals.quarantined), (batches, batches as u64));
            assert_eq!(
                (totals.inserted, totals.in_spool, totals.in_flight),
                (9 * batches as u64, 0, 0)
            );
            assert_eq!(rig.durable.len(), 1);
            assert!(rig.has_notice(|notice| matches!(notice, DeliveryNotice::RowTooLarge { .. })));
            assert_eq!(rig.unready(), "", "every insert has been answered");
        }
    }
}

#[test]
fn oversized_row_is_acked_when_its_own_file_is_durable() {
    let rule = |_: &str, piece: &Piece| {
        if piece.rows.contains(&9) { Err(FailureKind::TooLarge) } else { Ok(()) }
    };
    for (is_full, reason) in [(true, "spool: full"), (false, "spool.dir has not answered")] {
        let mut rig = rig(spooling(), rule);
        (rig.disk_is_full, rig.disk_hangs) = (is_full, !is_full);
        let id = rig.offer("d", 10).unwrap();
        rig.wait(Duration::from_secs(60));
        assert!(rig.durable.is_empty(), "{reason}: the row is in memory only");
        assert!(rig.unready().contains(reason), "{}", rig.unready());
        assert!(!rig.unready().contains("no answer to an insert"), "{}", rig.unready());
        let refused = rig.policy.totals().refused;
        assert_eq!((50..=60).contains(&refused), is_full, "{refused} refusals: one a second");
        let others: Vec<_> =
            (0..5).filter_map(|index| rig.offer(&format!("d{index}"), 1)).collect();
        rig.wait(Duration::from_secs(1));
        assert!(others.len() == 1 && rig.durable.contains(&others[0]), "the other slot is free");
        assert!(rig.unready().contains(reason), "reported for as long as a batch needs the disk");
        if is_full {
            rig.disk_is_full = false;
            rig.wait(Duration::from_secs(3));
            assert!(rig.durable.contains(&id));
            assert_eq!(rig.unready(), "");
            let totals = rig.policy.totals();
            assert_eq!(
                (totals.quarantined, totals.spool_quarantined, totals.spool_bytes),
                (1, 1, 7)
            );
        }
    }
}

#[test]
fn file_stays_until_its_oversized_rows_have_files_of_their_own() {
    let rule =
        |name: &str, _: &Piece| if name == "good0" { Err(FailureKind::TooLarge) } else { Ok(()) };
    let mut rig = with_files(spooling(), &names(0, 3), rule);
    rig.disk_is_full = true;
    rig.wait(Duration::from_secs(10));
    assert_eq!((rig.policy.totals().inserted, rig.policy.totals().in_spool), (20, 10));
    assert!(rig.unready().contains("full"), "{}", rig.unready());
    rig.disk_is_full = false;
    rig.wait(Duration::from_secs(60));
    let totals = rig.policy.totals();
    assert_eq!((totals.quarantined, totals.in_spool, totals.spool_bytes), (10, 0, 70));
    assert_eq!(rig.unready(), "");
}

#[test]
fn oversized_reject_without_a_spool_is_counted_as_dropped() {
    let too_large = |piece: &Piece| piece.insert == 1 && piece.rows.contains(&1);
    let mut rig =
        rig(
            policy_settings(),
            move |_, piece| {
                if too_large(piece) { Err(FailureKind::TooLarge) } else { Ok(()) }
            },
        );
    let batch = Batch {
        bytes: rig.batch_bytes,
        positions: vec![position("d", 0)],
        rejects: vec![reject(Reason::InvalidJson, 9), reject(Reason::InvalidJson, 65_536)],
        at_least_once: true,
        opened_at: Some(rig.now),
        ..Batch::default()
    };
    rig.names.insert(batch.id, ("d".to_owned(), 2));
    rig.policy.accept(batch, rig.now);
    rig.execute();
    rig.wait(Duration::from_secs(1));
    let totals = rig.policy.totals();
    assert_eq!((totals.inserted, totals.dropped, totals.rejects_dropped), (1, 0, 1));
    assert_eq!(rig.durable.len(), 1);
}

#[test]
fn oversized_row_without_a_spool_is_dropped_and_counted() {
    let mut rig = rig(policy_settings(), |_, _| Err(FailureKind::TooLarge));
    rig.offer("d", 2).unwrap();
    rig.wait(Duration::from_secs(1));
    let totals = rig.policy.totals();
    assert_eq!(
        (rig.durable.len(), rig.quarantined, totals.quarantined, totals.dropped),
        (1, 0, 0, 2)
    );
    assert_eq!(totals.spool_quarantined, 0);
    let is_drop_notice = |notice: &DeliveryNotice| {
        notice.to_string().contains("it is dropped, because there is no spool")
    };
    assert!(rig.has_notice(is_drop_notice) && totals.inserted == 0);
}

#[test]
fn oversized_row_that_may_not_be_dropped_waits_with_its_batch() {
    let limit_is_raised = Rc::new(Cell::new(false));
    let is_raised = Rc::clone(&limit_is_raised);
    let rule = move |_: &str, piece: &Piece| {
        let is_refused = !is_raised.get() && piece.rows.contains(&1);
        if is_refused { Err(FailureKind::TooLarge) } else { Ok(()) }
    };
    let mut rig = rig(DeliveryConfig { may_drop_rows: false, ..policy_settings() }, rule);
    let id = rig.offer("d", 3).unwrap();
    rig.wait(Duration::from_secs(59));
    let totals = rig.policy.totals();
    assert_eq!((totals.inserted, totals.dropped, totals.in_flight), (0, 0, 3));
    assert!(rig.durable.is_empty(), "its messages must stay with the broker");
    assert!((55..=65).contains(&rig.attempts), "{} attempts: one a second", rig.attempts);
    let lines: Vec<String> = rig.notices.iter().map(ToString::to_string).collect();
    let about_row = lines.iter().filter(|line| line.contains("a single row as too large"));
    assert_eq!(about_row.count(), 1, "once a minute: {lines:?}");
    assert!(lines.iter().any(|line| line.contains("stay with the broker")), "{lines:?}");
    assert_eq!(totals.rows_held, 1);
    limit_is_raised.set(true);
    rig.wait(Duration::from_secs(2));
    assert!(rig.durable.contains(&id));
    let totals = rig.policy.totals();
    assert_eq!((totals.inserted, totals.rows_held), (3, 0));
}

#[test]
fn file_with_unknown_columns_is_deferred() {
    let rule = |_: &str, _: &Piece| Err(FailureKind::TooLarge);
    let mut rig = with_files(spooling(), &["foreign".to_owned()], rule);
    rig.wait(Duration::from_secs(2));
    let reasons = rig.unready();
    assert!(reasons.contains("another version"), "{reasons}");
    rig.rule = Box::new(|_, _| unreachable!("a deferred file is not attempted"));
    rig.report_schema(Schema::Refused("dropped".to_owned()));
    rig.wait(Duration::from_secs(60));
    assert!(!rig.unready().contains("no answer"), "{}", rig.unready());
    assert_eq!(rig.policy.totals().in_spool, 10);
}

#[test]
fn flapping_spool_is_logged_once_a_minute() {
    for alternates in [false, true] {
        let mut rig = rig(spooling(), |_, _| Ok(()));
        rig.insert_duration = Duration::from_millis(400);
        rig.policy.set_under_pressure(true);
        for turn in 0..240 {
            rig.disk_is_full = !alternates || turn % 2 == 0;
            rig.offer("d", 1).unwrap();
            rig.wait(Duration::from_millis(500));
        }
        let is_about_spool = |notice: &&DeliveryNotice| {
            matches!(notice, DeliveryNotice::SpoolRefuses(_) | DeliveryNotice::SpoolAcceptsAgain)
        };
        let lines = rig.notices.iter().filter(is_about_spool).count();
        assert_eq!((lines, rig.inserted.len()), (if alternates { 4 } else { 2 }, 240));
    }
}

#[test]
fn failing_spool_does_not_block_inserts() {
    let is_down = Rc::new(Cell::new(true));
    let down = Rc::clone(&is_down);
    let rule =
        move |_: &str, _: &Piece| if down.get() { Err(FailureKind::Ambiguous) } else { Ok(()) };
    let mut rig = rig(spooling(), rule);
    rig.disk_is_full = true;
    rig.offer("d", 10).unwrap();
    rig.wait(Duration::from_secs(60));
    is_down.set(false);
    rig.wait(Duration::from_secs(6)); // a little more than the longest retry delay
    assert_eq!((rig.inserted.len(), rig.unready().as_str()), (1, ""));
}

#[test]
fn retries_back_off_without_a_spool_or_with_a_hung_disk() {
    for has_spool in [false, true] {
        let mut rig = rig(DeliveryConfig { has_spool, ..policy_settings() }, |_, _| {
            Err(FailureKind::Transient)
        });
        rig.disk_hangs = true;
        rig.offer("d", 10).unwrap();
        rig.wait(Duration::from_secs(60));
        assert!((8..=30).contains(&rig.attempts), "{} attempts in a minute", rig.attempts);
    }
}

#[test]
fn demand_is_bounded_by_insert_and_spool_capacity() {
    for has_spool in [false, true] {
        let mut rig =
            rig(DeliveryConfig { has_spool, inserts_in_flight: 3, ..policy_settings() }, |_, _| {
                Ok(())
            });
        rig.policy.set_under_pressure(true);
        rig.insert_duration = Duration::from_millis(300);
        rig.disk_hangs = true;
        (0..3).for_each(|_| assert!(rig.offer("d", 1).is_some()));
        assert_eq!((rig.offer("d", 1), rig.hanging), (None, 0), "all three slots are taken");
        rig.wait(Duration::from_millis(251));
        assert_eq!(
            rig.policy.demand(rig.now),
            if has_spool { Demand::ToStore } else { Demand::Nothing }
        );
        for _ in 0..50 {
            rig.offer("d", 1);
            rig.wait(Duration::from_millis(200));
        }
        assert_eq!(rig.hanging, if has_spool { 5 } else { 0 });
    }
}

#[test]
fn split_inserts_and_replays_pause_while_the_tables_are_gone() {
    let in_halves = |_: &str, piece: &Piece| {
        if piece.rows.len() > 5 { Err(FailureKind::TooLarge) } else { Ok(()) }
    };
    let dropped_tables = || Schema::Refused("an operator dropped them".to_owned());
    for (mut rig, wait_ms) in [
        (with_files(spooling(), &names(0, 1), |_, _| Ok(())), 2), // while a file is being read
        (with_files(spooling(), &names(0, 1), in_halves), 30),    // in the first half of a file
        (rig(spooling(), in_halves), 30),                         // in the first half of a batch
    ] {
        if rig.files.is_empty() {
            rig.offer("d", 10).unwrap();
        }
        rig.wait(Duration::from_millis(wait_ms));
        rig.report_schema(dropped_tables());
        let before = rig.inserted.len();
        rig.wait(Duration::from_secs(60));
        assert!(rig.inserted.len() <= before + 1, "only the insert that had begun");
        rig.report_schema(Schema::Ready);
        rig.wait(Duration::from_secs(60));
        assert!(rig.files.is_empty());
        assert_eq!(rig.policy.totals().inserted, 10);
        assert_eq!(rig.inserted.len(), if wait_ms == 2 { 1 } else { 2 }, "each half once");
    }
}

#[test]
fn leaving_process_spools_unfinished_batches_after_12_s() {
    let mut rig = with_files(spooling(), &names(0, 3), |_, _| Err(FailureKind::TimedOut));
    rig.report_schema(Schema::Refused("not yet".to_owned()));
    let id = rig.offer_at_most_once("d", 1).unwrap();
    rig.wait(Duration::from_secs(1));
    rig.report_schema(Schema::Ready);
    let at_least_once = rig.offer("e", 1).unwrap();
    rig.policy.leave(rig.now);
    rig.wait(Duration::from_secs(11));
    assert!(!rig.durable.contains(&at_least_once));
    rig.wait(Duration::from_secs(2));
    assert_eq!(rig.durable, BTreeSet::from([id, at_least_once]));
    assert_eq!(rig.files.len(), 5);
    assert!(rig.now > rig.began);
}

/// If the report were accepted in this stage, the batch would be dropped during its insert.
#[test]
#[should_panic(expected = "a report does not fit the batch's stage")]
fn outcome_removed_for_a_batch_without_a_file_panics() {
    let mut rig = rig(spooling(), |_, _| Ok(()));
    let batch = rig.offer("a", 1).unwrap();
    rig.report(batch, Outcome::Removed);
}

#[test]
#[should_panic(expected = "a report does not fit the batch's stage")]
fn second_report_of_an_attempt_panics() {
    let mut rig = rig(spooling(), |_, _| Ok(()));
    let batch = rig.offer("a", 1).unwrap();
    rig.report(batch, Outcome::Inserted { took: TIMEOUT, erased: 0 });
    rig.report(batch, Outcome::Inserted { took: TIMEOUT, erased: 0 });
}
