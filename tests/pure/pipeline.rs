//! Lane, inserter, spool and replay together, over the lives of several processes, against a broker and a server
//! that do everything such parts do: under paused time, from a script that proptest writes and shrinks.
//!
//! At every step: an acknowledgement names the oldest message of this connection, and every point of it is in
//! ClickHouse or in a readable file of the spool; the ledger adds up; the lane hands over no more than there are
//! places for. At the end nothing that the broker held or the spool took is missing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost::encode::Insert;
use milepost::health::Health;
use milepost::insert::{Attempt, FailureKind, Gate, Inserter, Settled, Sink, SinkError, Work};
use milepost::lane::{Command, Event, Lane, Link, Now, Settings};
use milepost::metrics::Metrics;
use milepost::position::Timestamp;
use milepost::replay::Replayer;
use milepost::spool::{self, Kind, OpenError, Spool};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::rows::{Sent, WALL_MS, decoder, lane_settings, payload};

/// RowBinary of a position of driver "d".
const ROW_BYTES: usize = 2 + 8 + 4 + 4 + 4 + 2 + 2 + 4 + 2 + 8;
/// Where its seq is.
const SEQ_AT: usize = 2 + 8;
const SLOTS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Fine,
    /// Two seconds an insert.
    Slow,
    Refusing,
    /// Answers nothing, and commits nothing.
    Hanging,
    /// Dies in every insert: knows its token afterwards, with or without its rows.
    Dying,
    /// Everything at random, and commits whose answers get lost.
    Flaky,
    /// The table is not there.
    NoTable,
}

#[derive(Debug, Clone)]
enum Step {
    Publish { points: u32, qos1: bool, broken: bool },
    Disconnect { session_kept: bool },
    Wait(u64),
    Server(Mood),
}

#[derive(Debug, Clone)]
struct Script {
    seed: u64,
    rows_max: usize,
    spool_bytes_max: Option<u64>,
    /// What each process lives through, and whether it is killed in the end.
    lives: Vec<(Vec<Step>, bool)>,
}

fn step() -> impl Strategy<Value = Step> {
    let mood = prop_oneof![
        2 => Just(Mood::Fine),
        1 => Just(Mood::Slow),
        1 => Just(Mood::Refusing),
        1 => Just(Mood::Hanging),
        1 => Just(Mood::Dying),
        2 => Just(Mood::Flaky),
        1 => Just(Mood::NoTable),
    ];
    prop_oneof![
        20 => (1_u32..6, prop::bool::weighted(0.8), prop::bool::weighted(0.1))
            .prop_map(|(points, qos1, broken)| Step::Publish { points, qos1, broken }),
        1 => prop::bool::weighted(0.8).prop_map(|session_kept| Step::Disconnect { session_kept }),
        8 => (1_u64..3_000).prop_map(Step::Wait),
        3 => mood.prop_map(Step::Server),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    let spool = prop_oneof![Just(None), Just(Some(2_000_u64)), Just(Some(1 << 20))];
    let life = (prop::collection::vec(step(), 0..60), prop::bool::weighted(0.7));
    (any::<u64>(), 1_usize..12, spool, prop::collection::vec(life, 1..4)).prop_map(
        |(seed, rows_max, spool_bytes_max, lives)| Script { seed, rows_max, spool_bytes_max, lives },
    )
}

/// ClickHouse, as far as rows and tokens go.
#[derive(Debug)]
struct Server {
    state: Mutex<ServerState>,
}

#[derive(Debug)]
struct ServerState {
    mood: Mood,
    rng: fastrand::Rng,
    rows: BTreeSet<u32>,
    /// What each token was used for. A known token inserts nothing, whether its rows are there or not.
    tokens: BTreeMap<String, (String, Vec<u8>)>,
}

impl ServerState {
    fn know(&mut self, insert: &Insert, token: &str) {
        let used_for = (insert.statement.clone(), insert.body.to_vec());
        let before = self.tokens.entry(token.to_owned()).or_insert_with(|| used_for.clone());
        assert_eq!(*before, used_for, "one token for different rows");
    }

    fn commit(&mut self, insert: &Insert, token: &str) {
        if !self.tokens.contains_key(token) && insert.statement.contains(".positions ") {
            self.rows.extend(seqs(insert));
        }
        self.know(insert, token);
    }
}

fn seqs(insert: &Insert) -> impl Iterator<Item = u32> {
    let seq = |row: &[u8]| u32::from_le_bytes(row[SEQ_AT..SEQ_AT + 4].try_into().unwrap());
    insert.body.chunks(ROW_BYTES).map(seq)
}

fn failure(kind: FailureKind) -> Result<(), SinkError> {
    Err(SinkError { kind, source: "scripted".into() })
}

impl Sink for Server {
    async fn insert(&self, insert: &Insert, attempt: &Attempt) -> Result<(), SinkError> {
        let (mood, chance) = {
            let mut state = self.state.lock().unwrap();
            (state.mood, state.rng.u32(..8))
        };
        let takes = if mood == Mood::Slow { 2_000 } else { 20 + u64::from(chance) * 7 };
        tokio::time::sleep(Duration::from_millis(takes)).await;
        let token = attempt.token.as_str();
        let hang = || tokio::time::sleep(attempt.timeout);
        let state = || self.state.lock().unwrap();
        match (mood, chance) {
            (Mood::Fine | Mood::Slow, _) | (Mood::Flaky, 0..3) => {
                state().commit(insert, token);
                Ok(())
            }
            (Mood::Refusing, _) | (Mood::Flaky, 3) => failure(FailureKind::Transient),
            (Mood::NoTable, _) | (Mood::Flaky, 4) => failure(FailureKind::Permanent),
            (Mood::Hanging, _) | (Mood::Flaky, 5) => {
                hang().await;
                failure(FailureKind::TimedOut)
            }
            (Mood::Dying, 0..4) => {
                state().know(insert, token);
                failure(FailureKind::Ambiguous)
            }
            (Mood::Dying, _) | (Mood::Flaky, 6) => {
                state().commit(insert, token);
                failure(FailureKind::Ambiguous)
            }
            (Mood::Flaky, _) => {
                state().commit(insert, token);
                hang().await;
                failure(FailureKind::TimedOut)
            }
        }
    }
}

/// What outlives a process.
struct World {
    server: Arc<Server>,
    folder: TempDir,
    queue: VecDeque<Sent>,
    /// Delivered in this session and not acknowledged, in order of delivery.
    unacked: VecDeque<(u16, Sent)>,
    packet_id: u16,
    next_seq: u32,
    /// Sent at QoS 1, and not gone with a session: must be in ClickHouse in the end.
    owed: BTreeSet<u32>,
}

impl World {
    fn new(seed: u64) -> Self {
        let state = ServerState {
            mood: Mood::Fine,
            rng: fastrand::Rng::with_seed(seed),
            rows: BTreeSet::new(),
            tokens: BTreeMap::new(),
        };
        // In memory where that can be: a model does not wait for a disk.
        let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        Self {
            server: Arc::new(Server { state: Mutex::new(state) }),
            folder,
            queue: VecDeque::new(),
            unacked: VecDeque::new(),
            packet_id: 0,
            next_seq: 0,
            owed: BTreeSet::new(),
        }
    }

    fn is_durable(&self, seq: u32) -> bool {
        self.server.state.lock().unwrap().rows.contains(&seq) || self.spooled().contains(&seq)
    }

    /// The positions in the spool's files, as a new process would find them.
    fn spooled(&self) -> Vec<u32> {
        let dir = self.folder.path();
        let files = spool::list(dir).unwrap().into_iter().filter(|file| file.kind == Kind::Batch);
        let read = |name: &str| spool::format::read(&std::fs::read(dir.join(name)).unwrap().into()).unwrap();
        files
            .flat_map(|file| read(&file.name))
            .filter(|insert| insert.statement.contains(".positions "))
            .flat_map(|insert| seqs(&insert).collect::<Vec<_>>())
            .collect()
    }
}

/// One process.
struct Life<'a> {
    world: &'a mut World,
    lane: Lane,
    began: Instant,
    /// The wall clock then. It goes on over lives: rows that are sent again are received at another time.
    began_ms: i64,
    window: usize,
    connected: bool,
    work: mpsc::Sender<Work>,
    settled: mpsc::Receiver<Settled>,
    leave: watch::Sender<bool>,
    spool: Option<Arc<Spool>>,
    metrics: Arc<Metrics>,
}

impl<'a> Life<'a> {
    fn begin(world: &'a mut World, script: &Script, began_ms: i64) -> Self {
        let metrics = Arc::new(Metrics::new(1));
        let health = Arc::new(Health::default());
        let open = |bytes_max| loop {
            match Spool::open(world.folder.path(), bytes_max, Arc::clone(&metrics)) {
                Ok(spool) => break spool,
                // Another test's child process holds what was open when it began, until it becomes its program.
                Err(OpenError::InUse(_)) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        let spool = script.spool_bytes_max.map(open).map(Arc::new);
        let (work, to_insert) = mpsc::channel(SLOTS + 2);
        let (to_settle, settled) = mpsc::channel(SLOTS + 2);
        let (leave, leaving) = watch::channel(false);
        let gate = watch::channel(Gate::Open).1;
        let timeout = Duration::from_secs(1);
        let inserter = Inserter {
            sink: Arc::clone(&world.server),
            lane: 0,
            database: "fleet".to_owned(),
            timeout,
            spool: spool.clone(),
            gate: gate.clone(),
            metrics: Arc::clone(&metrics),
            health: Arc::clone(&health),
        };
        tokio::spawn(inserter.run(to_insert, to_settle));
        if let Some(spool) = spool.clone() {
            let sink = Arc::clone(&world.server);
            let replayer = Replayer::new(sink, spool, timeout, Arc::clone(&metrics), health);
            tokio::spawn(replayer.run(gate, leaving));
        }
        let settings = lane_settings(script.rows_max);
        let settings = Settings {
            inserts_in_flight: SLOTS,
            receive_maximum: 60,
            spool: spool.is_some(),
            seed: script.seed,
            ..settings
        };
        let lane = Lane::new(settings, decoder());
        let began = Instant::now();
        Self {
            world,
            lane,
            began,
            began_ms,
            window: 60,
            connected: false,
            work,
            settled,
            leave,
            spool,
            metrics,
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        self.handle(event);
        self.metrics.lane(0, self.lane.totals());
        self.check_ledger();
    }

    fn handle(&mut self, event: Event<'_>) {
        let now = Instant::now();
        let since_ms = i64::try_from((now - self.began).as_millis()).unwrap();
        let wall = Timestamp::from_unix_ms(self.began_ms + since_ms);
        self.lane.handle(event, Now { instant: now.into_std(), wall });
        self.obey();
    }

    fn check_ledger(&self) {
        let ledger = self.metrics.ledger();
        assert!(ledger.adds_up(), "{ledger:?}");
        assert_eq!(ledger.quarantined, 0);
    }

    fn obey(&mut self) {
        while let Some(command) = self.lane.command() {
            match command {
                Command::Insert(batch) => self.hand_over(Work::Insert(batch)),
                Command::Spool(batch) => self.hand_over(Work::Spool(batch)),
                Command::SaveUnderWay => self.hand_over(Work::SaveUnderWay),
                Command::HangUp | Command::Disconnect => self.connected = false,
                Command::Subscribe | Command::Unsubscribe | Command::Log(_) => {}
            }
        }
        while let Some(packet_id) = self.lane.ack_due() {
            assert!(self.connected || matches!(self.lane.link(), Link::Closing { .. }));
            self.lane.ack_sent();
            let (expected, message) = self.world.unacked.pop_front().expect("somebody waits for it");
            assert_eq!(packet_id, expected, "out of order, or of another connection");
            for seq in message.seqs {
                assert!(self.world.is_durable(seq), "seq {seq} acknowledged before it was durable");
            }
        }
    }

    fn hand_over(&self, work: Work) {
        self.work.try_send(work).expect("there is a place for everything the lane hands over");
    }

    fn settled(&mut self, settled: &Settled) {
        self.handle(Event::Settled { batch: settled.batch, fate: settled.fate });
        if let (Some(entry), Some(spool)) = (settled.entry, &self.spool) {
            self.metrics.handed_to_spool(0, self.lane.totals(), entry.positions);
            spool.release(entry);
        }
        self.check_ledger();
    }

    fn connect(&mut self, session_kept: bool) {
        self.connected = true;
        self.tell(Event::Connected { session_present: session_kept, receive_maximum: None });
        self.tell(Event::Subscribed { refusals: Vec::new() });
        for (packet_id, message) in self.world.unacked.clone() {
            self.publish(&message, Some(packet_id));
        }
        self.deliver();
    }

    fn deliver(&mut self) {
        while self.connected && self.world.unacked.len() < self.window {
            let Some(message) = self.world.queue.pop_front() else { return };
            let packet_id = message.qos1.then(|| {
                self.world.packet_id = self.world.packet_id % 2_000 + 1;
                self.world.packet_id
            });
            if let Some(packet_id) = packet_id {
                self.world.unacked.push_back((packet_id, message.clone()));
            }
            self.publish(&message, packet_id);
        }
    }

    fn publish(&mut self, message: &Sent, packet_id: Option<u16>) {
        let payload = message.payload.as_bytes();
        self.tell(published(payload, packet_id));
    }

    /// Lets time pass, as the shell does.
    async fn wait(&mut self, duration: Duration) {
        let until = Instant::now() + duration;
        loop {
            let deadline = self.lane.deadline().map_or(until, |deadline| until.min(deadline.into()));
            tokio::select! {
                Some(settled) = self.settled.recv() => self.settled(&settled),
                () = tokio::time::sleep_until(deadline) => self.tell(Event::Tick),
            }
            if matches!(self.lane.link(), Link::Connecting) && !self.connected {
                self.connect(true);
            }
            self.deliver();
            if Instant::now() >= until {
                return;
            }
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Publish { points, qos1, broken } => {
                let first = self.world.next_seq;
                self.world.next_seq += points;
                let seqs: Vec<u32> = if broken { Vec::new() } else { (first..first + points).collect() };
                let payload = if broken { "oops".to_owned() } else { payload(&seqs) };
                if qos1 {
                    self.world.owed.extend(&seqs);
                }
                self.world.queue.push_back(Sent { seqs, payload, qos1 });
                self.deliver();
                tokio::task::yield_now().await;
            }
            Step::Disconnect { session_kept } if self.connected => {
                self.connected = false;
                if !session_kept {
                    for (_, message) in std::mem::take(&mut self.world.unacked) {
                        self.world.owed.retain(|seq| !message.seqs.contains(seq));
                    }
                }
                self.tell(Event::Disconnected { taken_over: false });
                // The broker's answer to the next CONNECT; `wait` connects with the session kept otherwise.
                while !matches!(self.lane.link(), Link::Connecting) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    self.tell(Event::Tick);
                }
                self.connect(session_kept);
            }
            Step::Disconnect { .. } => {}
            Step::Wait(ms) => self.wait(Duration::from_millis(ms)).await,
            Step::Server(mood) => self.world.server.state.lock().unwrap().mood = mood,
        }
    }

    /// The server is fine from now on: everything must get through.
    async fn finish(&mut self) {
        self.world.server.state.lock().unwrap().mood = Mood::Fine;
        for _ in 0..2_000 {
            let spooled = self.spool.as_ref().is_some_and(|spool| spool.batches() > 0);
            if self.world.queue.is_empty() && self.world.unacked.is_empty() && !spooled {
                return;
            }
            self.wait(Duration::from_millis(500)).await;
        }
        panic!("something waits for ever: {:?}, {:?}", self.lane.totals(), self.spool);
    }

    async fn leave(&mut self) {
        self.tell(Event::Leave);
        for _ in 0..200 {
            if matches!(self.lane.link(), Link::Ended | Link::Closing { .. }) {
                break;
            }
            self.wait(Duration::from_millis(200)).await;
        }
        self.leave.send_replace(true);
    }
}

fn published(payload: &[u8], packet_id: Option<u16>) -> Event<'_> {
    Event::Published { topic: b"drivers/d/gps", payload, payload_bytes: payload.len(), packet_id }
}

fn run(script: &Script) {
    let mut world = World::new(script.seed);
    for (index, (steps, killed)) in script.lives.iter().enumerate() {
        let last = index + 1 == script.lives.len();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut life = Life::begin(&mut world, script, WALL_MS + 3_600_000 * index as i64);
            life.connect(index > 0);
            for step in steps.clone() {
                life.step(step).await;
            }
            if last {
                life.finish().await;
            } else if !killed {
                life.leave().await;
            }
        });
        // A write that is under way ends with the process, the rest of its tasks at once.
        drop(runtime);
    }
    let rows = &world.server.state.lock().unwrap().rows;
    let missing: Vec<_> = world.owed.difference(rows).collect();
    assert!(missing.is_empty(), "lost: {missing:?}");
    assert!(world.spooled().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_broker_server_disk_and_kills_do_nothing_is_lost_or_acknowledged_early(script in script()) {
        run(&script);
    }
}

#[test]
fn a_definite_failure_keeps_the_token_and_an_ambiguous_one_does_not() {
    let insert = Insert::new("INSERT".to_owned(), "rows".into(), 1);
    assert_eq!(insert.token(0), insert.token(0));
    assert_ne!(insert.token(0), insert.token(1));
    let other = Insert::new("INSERT".to_owned(), "rowz".into(), 1);
    assert_ne!(insert.token(0), other.token(0));
    assert_eq!(insert.token(0).len(), 32);
}
