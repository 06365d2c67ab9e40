//! Lane and inserter together, under paused time, with a scripted source and a sink that fails by seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use milepost::encode::Insert;
use milepost::health::Health;
use milepost::insert::{Attempt, FailureKind, Inserter, Settled, Sink, SinkError};
use milepost::lane::{Command, Event, Lane, Link, Now};
use milepost::metrics::Metrics;
use tokio::sync::mpsc;

use crate::rows::{decoder, lane_settings, now, payload};

/// RowBinary of a position of driver "d".
const ROW_BYTES: usize = 2 + 8 + 4 + 4 + 4 + 2 + 2 + 4 + 2 + 8;

/// Commits, refuses, hangs or loses its answer, by seed; knows which tokens it has seen, as a server does.
struct SeededSink {
    state: Mutex<SinkState>,
}

struct SinkState {
    rng: fastrand::Rng,
    /// (statement, body) by token.
    committed: BTreeMap<String, (String, Vec<u8>)>,
    attempts: u64,
    failures: BTreeSet<&'static str>,
}

impl SeededSink {
    fn new(seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            state: Mutex::new(SinkState {
                rng,
                committed: BTreeMap::new(),
                attempts: 0,
                failures: BTreeSet::new(),
            }),
        }
    }
}

fn failure(kind: FailureKind) -> SinkError {
    SinkError { kind, source: "scripted".into() }
}

impl Sink for SeededSink {
    async fn insert(&self, insert: &Insert, attempt: &Attempt) -> Result<(), SinkError> {
        let commit = |state: &mut SinkState| {
            let rows = (insert.statement.clone(), insert.body.to_vec());
            let before = state.committed.entry(attempt.token.clone()).or_insert_with(|| rows.clone());
            assert_eq!(*before, rows, "one token for different rows: the server would drop them silently");
        };
        let choice = {
            let mut state = self.state.lock().unwrap();
            state.attempts += 1;
            state.rng.u32(..10)
        };
        tokio::time::sleep(Duration::from_millis(u64::from(choice) * 7)).await;
        let mut state = self.state.lock().unwrap();
        let kind = match choice {
            0..=4 => {
                commit(&mut state);
                return Ok(());
            }
            5 => FailureKind::Transient,
            6 => FailureKind::Permanent,
            7 => FailureKind::Ambiguous,
            8 => {
                commit(&mut state);
                FailureKind::Ambiguous
            }
            _ => {
                drop(state);
                tokio::time::sleep(attempt.timeout).await;
                return Err(failure(FailureKind::TimedOut));
            }
        };
        state.failures.insert(kind.name());
        Err(failure(kind))
    }
}

async fn run_until_everything_is_stored(seed: u64) -> SinkState {
    let began = Instant::now();
    let paused = tokio::time::Instant::now();
    let clock = || -> Now { now(began, paused.elapsed()) };
    let metrics = Arc::new(Metrics::new(1));
    let sink = Arc::new(SeededSink::new(seed));
    let (batches, to_insert) = mpsc::channel(2);
    let (to_settle, mut settled) = mpsc::channel::<Settled>(2);
    let inserter = Inserter {
        sink: Arc::clone(&sink),
        lane: 0,
        database: "fleet".to_owned(),
        timeout: Duration::from_secs(1),
        metrics: Arc::clone(&metrics),
        health: Arc::new(Health::default()),
    };
    let inserting = tokio::spawn(inserter.run(to_insert, to_settle));

    let mut lane = Lane::new(lane_settings(50), decoder());
    lane.handle(Event::Connected { session_present: false, receive_maximum: None }, clock());
    lane.handle(Event::Subscribed { refusals: Vec::new() }, clock());
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut sent, mut acked) = (0_u16, 0_u16);
    while acked < 900 {
        for _ in 0..rng.u32(..8) {
            if sent < 900 {
                sent += 1;
                let text = if sent % 20 == 0 { "broken".to_owned() } else { payload(&[u32::from(sent)]) };
                let event = Event::Published {
                    topic: b"drivers/d/gps",
                    payload: text.as_bytes(),
                    payload_bytes: text.len(),
                    packet_id: Some(sent),
                };
                lane.handle(event, clock());
            }
        }
        tokio::select! {
            Some(done) = settled.recv() => lane.handle(Event::Settled { batch: done.batch }, clock()),
            () = tokio::time::sleep(Duration::from_millis(20)) => lane.handle(Event::Tick, clock()),
        }
        while let Some(command) = lane.command() {
            if let Command::Insert(batch) = command {
                batches.try_send(batch).expect("a slot is free whenever the lane says insert");
            }
        }
        while let Some(packet_id) = lane.ack_due() {
            acked += 1;
            assert_eq!(packet_id, acked, "in the order received");
            lane.ack_sent();
        }
        metrics.lane(0, lane.totals());
    }
    assert!(matches!(lane.link(), Link::Live { .. }));
    let totals = lane.totals();
    assert_eq!((totals.received, totals.inserted, totals.in_flight), (900, 855, 0));
    assert_eq!(totals.rejected.iter().sum::<u64>(), 45);

    let text = metrics.render();
    assert!(text.contains("milepost_positions_inserted_total 855\n"), "{text}");
    assert!(text.contains("milepost_positions_in_flight 0\n"), "{text}");
    drop(batches);
    inserting.await.unwrap();
    Arc::into_inner(sink).unwrap().state.into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn whatever_the_server_does_everything_is_stored_and_acknowledged_in_order() {
    let mut failures = BTreeSet::new();
    for seed in 0..30 {
        let state = run_until_everything_is_stored(seed).await;
        failures.extend(state.failures);
        // Rows committed twice under two tokens are equal rows, which the table collapses.
        let statements: BTreeSet<_> =
            state.committed.values().map(|(statement, _)| statement.as_str()).collect();
        assert_eq!(statements.len(), 2, "positions and rejects");
        let rows: BTreeSet<_> = state
            .committed
            .values()
            .filter(|(statement, _)| statement.contains(".positions "))
            .flat_map(|(_, body)| body.chunks(ROW_BYTES).map(<[u8]>::to_vec).collect::<Vec<_>>())
            .collect();
        assert_eq!(rows.len(), 855, "seed {seed}: each fix, once by identity");
    }
    assert_eq!(failures.len(), 3, "the seeds try every kind: {failures:?}");
}

#[test]
fn a_definite_failure_keeps_the_token_and_an_ambiguous_one_does_not() {
    let insert = Insert { statement: "INSERT".to_owned(), body: "rows".into(), rows: 1 };
    assert_eq!(insert.token(0), insert.token(0));
    assert_ne!(insert.token(0), insert.token(1));
    let other = Insert { body: "rowz".into(), ..insert.clone() };
    assert_ne!(insert.token(0), other.token(0));
    assert_eq!(insert.token(0).len(), 32);
}
