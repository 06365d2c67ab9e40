//! What goes to the spool and what does not, and in which order it comes out, rule by rule, under paused time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost::batch::{Batch, Batcher, Limits};
use milepost::decode::Reason;
use milepost::encode::Insert;
use milepost::health::Health;
use milepost::insert::{Attempt, FailureKind, Gate, Inserter, Settled, Sink, SinkError, Work};
use milepost::lane::{Command, Event, Fate, Lane, Settings, Totals};
use milepost::metrics::Metrics;
use milepost::position::Qos;
use milepost::replay::Replayer;
use milepost::spool::{Kind, Spool, list};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::rows::{decoder, lane_settings, now, payload, position, reject};

const TIMEOUT: Duration = Duration::from_secs(60);

type Rule = Box<dyn Fn(&str) -> Result<(), FailureKind> + Send + Sync>;

/// Takes 20 ms, and then does as the rule for the insert's text says; a timeout takes as long as it may.
struct Scripted {
    rule: Mutex<Rule>,
    inserted: Mutex<Vec<String>>,
}

impl Sink for Scripted {
    async fn insert(&self, insert: &Insert, attempt: &Attempt) -> Result<(), SinkError> {
        sleep(Duration::from_millis(20)).await;
        let text = format!("{} {}", insert.statement, String::from_utf8_lossy(&insert.body));
        let verdict = (self.rule.lock().unwrap())(&text);
        if verdict == Err(FailureKind::TimedOut) {
            sleep(attempt.timeout).await;
        }
        match verdict {
            Ok(()) => self.inserted.lock().unwrap().push(text),
            Err(kind) => return Err(SinkError { kind, source: "scripted".into() }),
        }
        Ok(())
    }
}

/// Inserter, spool and replay of one lane.
struct Rig {
    sink: Arc<Scripted>,
    spool: Arc<Spool>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    work: mpsc::Sender<Work>,
    settled: mpsc::Receiver<Settled>,
    gate: watch::Sender<Gate>,
    _leave: watch::Sender<bool>,
    _folder: TempDir,
}

fn rig(rule: impl Fn(&str) -> Result<(), FailureKind> + Send + Sync + 'static) -> Rig {
    let folder = TempDir::new().unwrap();
    let (metrics, health) = (Arc::new(Metrics::new(1)), Arc::new(Health::default()));
    let spool = Arc::new(Spool::open(folder.path(), 1 << 20, Arc::clone(&metrics)).unwrap());
    let sink = Arc::new(Scripted { rule: Mutex::new(Box::new(rule)), inserted: Mutex::default() });
    let (work, to_insert) = mpsc::channel(4);
    let (to_settle, settled) = mpsc::channel(4);
    let (gate, at_gate) = watch::channel(Gate::Open);
    let (leave, leaving) = watch::channel(false);
    let inserter = Inserter {
        sink: Arc::clone(&sink),
        lane: 0,
        database: "fleet".to_owned(),
        timeout: TIMEOUT,
        spool: Some(Arc::clone(&spool)),
        gate: at_gate.clone(),
        metrics: Arc::clone(&metrics),
        health: Arc::clone(&health),
    };
    tokio::spawn(inserter.run(to_insert, to_settle));
    let replayer = Replayer::new(
        Arc::clone(&sink),
        Arc::clone(&spool),
        TIMEOUT,
        Arc::clone(&metrics),
        Arc::clone(&health),
    );
    tokio::spawn(replayer.run(at_gate, leaving));
    Rig { sink, spool, metrics, health, work, settled, gate, _leave: leave, _folder: folder }
}

impl Rig {
    fn rule(&self, rule: impl Fn(&str) -> Result<(), FailureKind> + Send + Sync + 'static) {
        *self.sink.rule.lock().unwrap() = Box::new(rule);
    }

    fn inserted(&self) -> usize {
        self.sink.inserted.lock().unwrap().len()
    }

    /// The next fate, within a limit of (paused) time; a spooled batch is handed over as the lane does it.
    async fn fate(&mut self, within: Duration) -> Option<(u64, Fate)> {
        let settled = tokio::time::timeout(within, self.settled.recv()).await.ok()??;
        if let Some(entry) = settled.entry {
            self.metrics.handed_to_spool(0, Totals::default(), entry.positions);
            self.spool.release(entry);
        }
        Some((settled.batch, settled.fate))
    }

    fn spooled(&self, text: &str) {
        let insert = Insert::new("INSERT INTO t".to_owned(), text.to_owned().into(), 1);
        let entry = self.spool.store(&[insert], 1, 0).unwrap();
        self.metrics.handed_to_spool(0, Totals::default(), 1);
        self.spool.release(entry);
    }

    async fn wait_for_inserted(&self, count: usize) -> Duration {
        let began = Instant::now();
        while self.inserted() < count {
            sleep(Duration::from_millis(50)).await;
            assert!(began.elapsed() < Duration::from_secs(7_200), "{} of {count} inserted", self.inserted());
        }
        began.elapsed()
    }
}

/// A batch of one row a name, ids from 0.
fn batches(drivers: &[String], qos: Qos) -> Vec<Batch> {
    let limits = Limits { rows_max: 1, age_max: Duration::from_secs(1), bytes_max: 1 << 20 };
    let mut batcher = Batcher::new(limits);
    let one = |(seq, driver): (u32, &String)| {
        batcher.push_position(position(driver, seq, qos), std::time::Instant::now());
        batcher.close()
    };
    (0..).zip(drivers).map(one).collect()
}

fn one_batch(qos: Qos) -> Batch {
    batches(&["d".to_owned()], qos).remove(0)
}

#[tokio::test(start_paused = true)]
async fn the_wish_to_save_reaches_a_batch_that_was_handed_over_just_before() {
    let mut rig = rig(|_| Err(FailureKind::TimedOut));
    for batch in batches(&["a".to_owned(), "b".to_owned()], Qos::AtLeastOnce) {
        rig.work.try_send(Work::Insert(batch)).unwrap();
    }
    rig.work.try_send(Work::SaveUnderWay).unwrap();
    let fates = [rig.fate(Duration::from_secs(5)).await, rig.fate(Duration::from_secs(5)).await];
    let fates: BTreeMap<u64, Fate> = fates.into_iter().flatten().collect();
    assert_eq!(fates, BTreeMap::from([(0, Fate::Saved), (1, Fate::Saved)]));
}

#[tokio::test(start_paused = true)]
async fn one_batch_that_never_gets_in_does_not_take_the_others_with_it() {
    for kind in [FailureKind::Transient, FailureKind::Ambiguous, FailureKind::TimedOut] {
        let mut rig = rig(move |text| if text.contains("poison") { Err(kind) } else { Ok(()) });
        let names = (0..50).map(|n| if n == 0 { "poison".to_owned() } else { format!("d{n}") });
        let mut straight = 0;
        for batch in batches(&names.collect::<Vec<_>>(), Qos::AtLeastOnce) {
            rig.work.send(Work::Insert(batch)).await.unwrap();
            let (_, fate) = rig.fate(2 * TIMEOUT).await.unwrap();
            straight += u32::from(fate == Fate::Inserted);
            sleep(Duration::from_secs(1)).await;
        }
        let took = rig.wait_for_inserted(49).await;
        assert!(straight > 40, "{kind:?}: {straight} of 49 went straight to the server");
        assert!(took < 4 * TIMEOUT, "{kind:?}: the others waited {took:?}");
        assert_eq!(rig.spool.batches(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn with_nothing_coming_in_a_bad_oldest_batch_does_not_hold_up_the_spool() {
    let rig = rig(|text| if text.contains("bad") { Err(FailureKind::Transient) } else { Ok(()) });
    rig.spooled("bad");
    (0..20).for_each(|n| rig.spooled(&format!("good {n}")));
    let took = rig.wait_for_inserted(20).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn batches_nobody_can_insert_do_not_slow_the_others() {
    let rig = rig(|text| if text.contains("bad") { Err(FailureKind::Permanent) } else { Ok(()) });
    (0..30).for_each(|n| rig.spooled(&format!("bad {n}")));
    (0..30).for_each(|n| rig.spooled(&format!("good {n}")));
    let took = rig.wait_for_inserted(30).await;
    assert!(took < Duration::from_secs(180), "{took:?}");
    assert!(rig.health.unready().iter().any(|why| why.contains("permanent")));
    rig.rule(|_| Ok(()));
    let took = rig.wait_for_inserted(60).await;
    assert!(took < Duration::from_secs(60), "mended, and noticed after {took:?}");
    assert!(rig.health.unready().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_read_does_not_slow_the_others() {
    let rig = rig(|_| Ok(()));
    rig.spooled("unreadable");
    let path = rig.spool.dir().join(&list(rig.spool.dir()).unwrap()[0].name);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    (0..60).for_each(|n| rig.spooled(&format!("good {n}")));
    let took = rig.wait_for_inserted(60).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn oldest_first_and_ready_again_when_the_spool_is_empty() {
    let rig = rig(|_| Err(FailureKind::Transient));
    (0..5).for_each(|n| rig.spooled(&format!("{n}")));
    sleep(Duration::from_secs(20)).await;
    assert!(!rig.health.unready().is_empty());
    rig.rule(|_| Ok(()));
    rig.wait_for_inserted(5).await;
    let order: Vec<String> =
        rig.sink.inserted.lock().unwrap().iter().map(|text| text[text.len() - 1..].to_owned()).collect();
    // While nothing gets through, another than the oldest is tried now and then.
    assert!(["01234", "10234"].contains(&order.join("").as_str()), "{order:?}");
    assert!(rig.health.unready().is_empty(), "{:?}", rig.health.unready());
}

#[tokio::test(start_paused = true)]
async fn a_damaged_last_file_is_no_trouble_any_longer() {
    let rig = rig(|_| Err(FailureKind::Transient));
    rig.spooled("x");
    sleep(Duration::from_secs(10)).await;
    for file in list(rig.spool.dir()).unwrap() {
        std::fs::remove_file(rig.spool.dir().join(file.name)).unwrap();
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.metrics.ledger().quarantined, 1);
    assert!(rig.health.unready().is_empty(), "{:?}", rig.health.unready());
}

#[tokio::test(start_paused = true)]
async fn a_file_of_a_newer_version_is_left_for_that_version() {
    let folder = TempDir::new().unwrap();
    let content = b"MILEPOST\x02\0\0\0\x01\0\0\0";
    let checksum = twox_hash::XxHash3_128::oneshot(content);
    let file = [&content[..], &checksum.to_le_bytes()].concat();
    std::fs::write(folder.path().join("00000000000000000000-7-0.batch"), file).unwrap();
    let metrics = Arc::new(Metrics::new(0));
    let spool = Arc::new(Spool::open(folder.path(), 1 << 20, Arc::clone(&metrics)).unwrap());
    let health = Arc::new(Health::default());
    let sink = Arc::new(Scripted { rule: Mutex::new(Box::new(|_| Ok(()))), inserted: Mutex::default() });
    Replayer::new(sink, Arc::clone(&spool), TIMEOUT, Arc::clone(&metrics), Arc::clone(&health)).drain().await;
    assert_eq!((spool.batches(), metrics.ledger().quarantined), (1, 0));
    assert_eq!(list(folder.path()).unwrap()[0].kind, Kind::Batch);
    assert!(health.unready()[0].contains("format version 2"));
}

#[tokio::test(start_paused = true)]
async fn every_insert_of_a_batch_is_replayed() {
    let mut rig = rig(|_| Err(FailureKind::Transient));
    let limits = Limits { rows_max: 9, age_max: Duration::from_secs(1), bytes_max: 1 << 20 };
    let mut batcher = Batcher::new(limits);
    batcher.push_position(position("d", 1, Qos::AtLeastOnce), std::time::Instant::now());
    batcher.push_reject(reject(Reason::Empty, 3), std::time::Instant::now());
    rig.work.send(Work::Insert(batcher.close())).await.unwrap();
    assert_eq!(rig.fate(TIMEOUT).await, Some((0, Fate::Spooled)));
    rig.rule(|_| Ok(()));
    rig.wait_for_inserted(2).await;
    let inserted = rig.sink.inserted.lock().unwrap().join("\n");
    assert!(inserted.contains("fleet.positions") && inserted.contains("fleet.rejects"), "{inserted}");
}

#[tokio::test(start_paused = true)]
async fn what_only_a_person_can_mend_is_held_at_qos_1_and_spooled_at_qos_0() {
    let mut rig = rig(|_| Err(FailureKind::Permanent));
    rig.work.send(Work::Insert(one_batch(Qos::AtLeastOnce))).await.unwrap();
    assert_eq!(rig.fate(Duration::from_secs(10)).await, None);
    rig.work.send(Work::SaveUnderWay).await.unwrap();
    assert_eq!(rig.fate(Duration::from_secs(300)).await, None, "not acknowledged, whoever wishes it");
    rig.work.send(Work::Insert(one_batch(Qos::AtMostOnce))).await.unwrap();
    assert_eq!(rig.fate(TIMEOUT).await.map(|(_, fate)| fate), Some(Fate::Spooled));
    rig.rule(|_| Ok(()));
    assert_eq!(rig.fate(TIMEOUT).await.map(|(_, fate)| fate), Some(Fate::Inserted));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_inserted_before_the_tables_are_there() {
    let mut rig = rig(|_| Ok(()));
    rig.gate.send_replace(Gate::Refused);
    rig.work.send(Work::Insert(one_batch(Qos::AtLeastOnce))).await.unwrap();
    assert_eq!(rig.fate(Duration::from_secs(300)).await, None, "not migrated: a person must act");
    rig.gate.send_replace(Gate::Unknown);
    rig.work.send(Work::Insert(one_batch(Qos::AtLeastOnce))).await.unwrap();
    for _ in 0..2 {
        let fate = rig.fate(Duration::from_secs(10)).await.map(|(_, fate)| fate);
        assert!(matches!(fate, Some(Fate::Saved | Fate::Spooled)), "nobody has answered: the spool takes it");
    }
    assert_eq!(rig.inserted(), 0);
    rig.gate.send_replace(Gate::Open);
    rig.wait_for_inserted(2).await;
}

/// A lane that is connected, and the beginning of its time.
fn live(settings: Settings) -> (Lane, std::time::Instant) {
    let began = std::time::Instant::now();
    let mut lane = Lane::new(settings, decoder());
    let connected = Event::Connected { session_present: false, receive_maximum: None };
    lane.handle(connected, now(began, Duration::ZERO));
    lane.handle(Event::Subscribed { refusals: Vec::new() }, now(began, Duration::ZERO));
    while lane.command().is_some() {}
    (lane, began)
}

fn publish(lane: &mut Lane, at: milepost::lane::Now, n: u32, qos1: bool) {
    let payload = payload(&[n]);
    let payload = payload.as_bytes();
    let packet_id = qos1.then_some(u16::try_from(n % 60_000 + 1).unwrap());
    lane.handle(
        Event::Published { topic: b"drivers/d/gps", payload, payload_bytes: payload.len(), packet_id },
        at,
    );
}

#[test]
fn a_window_that_is_in_one_insert_is_saved_though_a_slot_is_free() {
    let settings = Settings { spool: true, receive_maximum: 1_000, ..lane_settings(5_000) };
    let (mut lane, began) = live(settings);
    (0..1_000).for_each(|n| publish(&mut lane, now(began, Duration::ZERO), n, true));
    assert!(matches!(lane.command(), Some(Command::Insert(_))));
    lane.handle(Event::Tick, now(began, Duration::from_millis(300)));
    let commands: Vec<Command> = std::iter::from_fn(|| lane.command()).collect();
    assert!(commands.iter().any(|command| matches!(command, Command::SaveUnderWay)), "{commands:?}");
}

#[test]
fn qos_0_is_not_shed_while_the_spool_takes_batches() {
    let batch = Limits { rows_max: 5_000, age_max: Duration::from_secs(1), bytes_max: 1 << 20 };
    let settings = Settings { spool: true, buffer_bytes_max: 8 << 20, batch, ..lane_settings(10) };
    let (mut lane, began) = live(settings);
    let mut spooling = None;
    for n in 0..400_000_u32 {
        let after = Duration::from_micros(u64::from(n) * 50); // 20,000 a second
        publish(&mut lane, now(began, after), n, false);
        while let Some(command) = lane.command() {
            if let Command::Spool(batch) = command {
                spooling = Some((batch.id, after + Duration::from_millis(30)));
            }
        }
        if let Some((batch, _)) = spooling.take_if(|(_, written)| *written <= after) {
            lane.handle(Event::Settled { batch, fate: Fate::Spooled }, now(began, after));
        }
    }
    assert_eq!(lane.totals().shed, 0);
    assert!(lane.totals().spooled > 300_000);
}

#[test]
fn files_are_worth_their_fsyncs() {
    let settings = Settings { spool: true, receive_maximum: 100, ..lane_settings(1_000) };
    let (mut lane, began) = live(settings);
    let (mut sizes, mut n) = (Vec::new(), 0);
    for ms in 0..2_000_u64 {
        let at = now(began, Duration::from_millis(ms));
        if lane.totals().unacked < 100 {
            publish(&mut lane, at, n, true);
            n += 1;
        }
        lane.handle(Event::Tick, at);
        while let Some(command) = lane.command() {
            if let Command::Spool(batch) = command {
                sizes.push(batch.rows());
                lane.handle(Event::Settled { batch: batch.id, fate: Fate::Spooled }, at);
            }
        }
    }
    assert!(sizes.len() < 25, "one message a millisecond, in files of {sizes:?}");
}
