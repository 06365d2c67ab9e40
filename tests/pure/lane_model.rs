//! The lane against a broker and a store that remember everything.
//!
//! The broker keeps sessions, packet ids and a window as MQTT says; the store keeps what settled. At every
//! step: an acknowledgement names a message of this connection whose every point is stored, in order; the
//! ledger adds up; memory is bounded. At the end nothing the broker held is missing.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use milepost::batch::Batch;
use milepost::lane::{Command, Event, Fate, Lane, Link, Settings, Totals};
use proptest::prelude::*;

use crate::rows::{Sent, decoder, lane_settings, now, payload};

#[derive(Debug, Clone)]
enum Step {
    Publish {
        points: u32,
        qos1: bool,
        broken: bool,
    },
    Settle(usize),
    /// With a spool: what the lane wanted saved is saved, what is on its way to the spool has arrived there.
    Spool,
    Disconnect {
        session_kept: bool,
    },
    Wait(u64),
    Leave,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (1_u32..6, prop::bool::weighted(0.8), prop::bool::weighted(0.1))
            .prop_map(|(points, qos1, broken)| Step::Publish { points, qos1, broken }),
        12 => (0_usize..4).prop_map(Step::Settle),
        6 => Just(Step::Spool),
        2 => prop::bool::weighted(0.7).prop_map(|session_kept| Step::Disconnect { session_kept }),
        6 => (1_u64..1_500).prop_map(Step::Wait),
    ]
}

/// Broker, store and clock around one lane.
struct World {
    lane: Lane,
    settings: Settings,
    began: Instant,
    after: Duration,
    connected: bool,
    queue: VecDeque<Sent>,
    /// Delivered on this session and not acknowledged, in order of delivery.
    unacked: VecDeque<(u16, Sent)>,
    packet_id: u16,
    inserting: Vec<Batch>,
    /// On its way to the spool.
    spooling: Option<Batch>,
    /// Batches that the lane wants saved while they are being inserted.
    save_wanted: BTreeSet<u64>,
    stored: BTreeSet<u32>,
    acked: BTreeSet<u32>,
    /// Sent at QoS 1 and never lost with a session: must be stored in the end.
    owed: BTreeSet<u32>,
    next_seq: u32,
    sessions_lost: u64,
    window: usize,
}

impl World {
    fn new(settings: Settings) -> Self {
        let window = usize::from(settings.receive_maximum);
        let mut world = Self {
            lane: Lane::new(settings.clone(), decoder()),
            settings,
            began: Instant::now(),
            after: Duration::ZERO,
            connected: false,
            queue: VecDeque::new(),
            unacked: VecDeque::new(),
            packet_id: 0,
            inserting: Vec::new(),
            spooling: None,
            save_wanted: BTreeSet::new(),
            stored: BTreeSet::new(),
            acked: BTreeSet::new(),
            owed: BTreeSet::new(),
            next_seq: 0,
            sessions_lost: 0,
            window,
        };
        world.connect(false);
        world
    }

    fn tell(&mut self, event: Event<'_>) {
        self.lane.handle(event, now(self.began, self.after));
        self.obey();
        check_ledger(&self.lane.totals());
    }

    fn obey(&mut self) {
        while let Some(command) = self.lane.command() {
            match command {
                Command::Insert(batch) => {
                    assert!(!batch.is_empty() && batch.bytes <= self.settings.batch.bytes_max);
                    self.inserting.push(batch);
                    assert!(
                        self.inserting.len() <= self.settings.inserts_in_flight,
                        "more inserts than slots"
                    );
                }
                Command::Spool(batch) => {
                    assert!(self.settings.spool && !batch.is_empty());
                    assert!(self.spooling.replace(batch).is_none(), "one at a time");
                }
                Command::SaveUnderWay => {
                    self.save_wanted.extend(self.inserting.iter().map(|batch| batch.id));
                }
                Command::HangUp => self.connected = false,
                Command::Disconnect => {
                    assert!(self.unacked.is_empty() || !self.connected || self.lane.totals().unacked == 0);
                    self.connected = false;
                }
                Command::Subscribe | Command::Unsubscribe | Command::Log(_) => {}
            }
        }
        while let Some(packet_id) = self.lane.ack_due() {
            assert!(self.connected, "an acknowledgement without a connection");
            self.lane.ack_sent();
            let (expected, message) = self.unacked.pop_front().expect("an acknowledgement nobody waits for");
            assert_eq!(packet_id, expected, "out of order, or of another connection");
            for seq in &message.seqs {
                assert!(self.stored.contains(seq), "seq {seq} acknowledged before it was stored");
                self.acked.insert(*seq);
            }
        }
    }

    fn connect(&mut self, session_kept: bool) {
        self.connected = true;
        self.tell(Event::Connected { session_present: session_kept, receive_maximum: None });
        self.tell(Event::Subscribed { refusals: Vec::new() });
        if session_kept {
            for (packet_id, message) in self.unacked.clone() {
                self.tell(Event::Published {
                    topic: b"drivers/d/gps",
                    payload: message.payload.as_bytes(),
                    payload_bytes: message.payload.len(),
                    packet_id: Some(packet_id),
                });
            }
        }
        self.deliver();
    }

    fn deliver(&mut self) {
        while self.connected && self.unacked.len() < self.window {
            let Some(message) = self.queue.pop_front() else { return };
            let packet_id = message.qos1.then(|| {
                self.packet_id = self.packet_id % 2_000 + 1;
                self.packet_id
            });
            if let Some(packet_id) = packet_id {
                self.unacked.push_back((packet_id, message.clone()));
            }
            self.tell(Event::Published {
                topic: b"drivers/d/gps",
                payload: message.payload.as_bytes(),
                payload_bytes: message.payload.len(),
                packet_id,
            });
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish { points, qos1, broken } => {
                let seqs: Vec<u32> =
                    if broken { Vec::new() } else { (self.next_seq..self.next_seq + points).collect() };
                let payload = if broken { "oops".to_owned() } else { payload(&seqs) };
                self.next_seq += points;
                if qos1 {
                    self.owed.extend(&seqs);
                }
                self.queue.push_back(Sent { seqs, payload, qos1 });
                self.deliver();
            }
            Step::Settle(n) => self.settle(n),
            Step::Spool => self.spool(),
            Step::Disconnect { session_kept } => self.disconnect(session_kept),
            Step::Wait(ms) => self.wait(Duration::from_millis(ms)),
            Step::Leave => self.tell(Event::Leave),
        }
    }

    fn settle(&mut self, n: usize) {
        if self.inserting.is_empty() {
            return;
        }
        let batch = self.inserting.remove(n % self.inserting.len());
        self.save_wanted.remove(&batch.id);
        self.stored.extend(seqs(&batch));
        self.tell(Event::Settled { batch: batch.id, fate: Fate::Inserted });
        self.deliver();
    }

    fn spool(&mut self) {
        if let Some(batch) = self.spooling.take() {
            self.stored.extend(seqs(&batch));
            self.tell(Event::Settled { batch: batch.id, fate: Fate::Spooled });
        }
        while let Some(id) = self.save_wanted.pop_first() {
            let saved = self.inserting.iter().find(|batch| batch.id == id).expect("it is being inserted");
            self.stored.extend(seqs(saved));
            self.tell(Event::Settled { batch: id, fate: Fate::Saved });
        }
        self.deliver();
    }

    fn disconnect(&mut self, session_kept: bool) {
        if !self.connected {
            return;
        }
        self.connected = false;
        if !session_kept {
            self.sessions_lost += 1;
            for (_, message) in std::mem::take(&mut self.unacked) {
                // Gone with the session: stored only if it had got far enough.
                self.owed.retain(|seq| !message.seqs.contains(seq));
            }
        }
        self.tell(Event::Disconnected { taken_over: false });
        while !matches!(self.lane.link(), Link::Connecting | Link::Ended) {
            self.wait(Duration::from_millis(500));
        }
        if matches!(self.lane.link(), Link::Connecting) {
            self.connect(session_kept);
        }
    }

    /// Lets time pass, with a tick whenever the lane asked for one.
    fn wait(&mut self, duration: Duration) {
        let until = self.after + duration;
        while let Some(deadline) = self.lane.deadline()
            && deadline <= self.began + until
        {
            self.after = self.after.max(deadline - self.began);
            let before = self.lane.deadline();
            self.tell(Event::Tick);
            assert_ne!(self.lane.deadline(), before, "a deadline that stays would make the shell spin");
        }
        self.after = until;
    }

    fn finish(&mut self) {
        for _ in 0..1_000 {
            if self.queue.is_empty()
                && self.inserting.is_empty()
                && self.spooling.is_none()
                && self.lane.totals().in_flight == 0
                && self.unacked.is_empty()
            {
                break;
            }
            self.wait(Duration::from_millis(1_100));
            self.spool();
            self.settle(0);
            self.deliver();
        }
    }
}

fn seqs(batch: &Batch) -> impl Iterator<Item = u32> {
    batch.positions.iter().map(|position| position.seq)
}

fn check_ledger(totals: &Totals) {
    let rejected: u64 = totals.rejected.iter().sum();
    assert_eq!(
        totals.received,
        totals.inserted + rejected + totals.shed + totals.abandoned + totals.spooled + totals.in_flight,
        "the ledger does not add up: {totals:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_lost_or_acknowledged_early(
        steps in prop::collection::vec(step(), 0..150),
        rows_max in 1_usize..12,
        window in 3_u16..40,
        slots in 1_usize..4,
        spool: bool,
    ) {
        let settings = lane_settings(rows_max);
        let settings = Settings { inserts_in_flight: slots, receive_maximum: window, spool, ..settings };
        let mut world = World::new(settings);
        for step in steps {
            world.step(step);
        }
        world.finish();
        let missing: Vec<_> = world.owed.difference(&world.stored).collect();
        prop_assert!(missing.is_empty(), "lost: {:?}", missing);
        prop_assert!(world.unacked.is_empty(), "unacknowledged for ever: {:?}", world.unacked);
        prop_assert_eq!(world.lane.totals().sessions_lost, world.sessions_lost);
    }

    #[test]
    fn leaving_flushes_and_acknowledges_everything_taken(
        steps in prop::collection::vec(step(), 0..80),
        unsubscribe: bool,
        spool: bool,
    ) {
        let mut world = World::new(Settings { leave: unsubscribe, spool, ..lane_settings(5) });
        for step in steps {
            world.step(step);
        }
        world.step(Step::Leave);
        for round in 0..100 {
            if matches!(world.lane.link(), Link::Ended) {
                break;
            }
            world.spool();
            world.settle(0);
            if round == 3 {
                world.tell(Event::Unsubscribed);
            }
            world.wait(Duration::from_millis(400));
        }
        prop_assert_eq!(world.lane.link(), Link::Ended);
        prop_assert_eq!(world.lane.totals().in_flight, 0);
        // What is unacknowledged was never taken: the broker still holds it for the next process.
        for seq in world.acked.iter() {
            prop_assert!(world.stored.contains(seq));
        }
    }
}

#[test]
fn a_full_window_does_not_wait_for_the_clock() {
    let mut world = World::new(Settings { receive_maximum: 4, ..lane_settings(5_000) });
    for _ in 0..4 {
        world.step(Step::Publish { points: 1, qos1: true, broken: false });
    }
    assert_eq!(world.inserting.len(), 1, "nothing more can come: insert now");
    assert_eq!(world.inserting[0].rows(), 4);
}

#[test]
fn an_announced_window_that_is_exceeded_is_not_one() {
    let mut world = World::new(lane_settings(5_000));
    world.tell(Event::Disconnected { taken_over: false });
    world.wait(Duration::from_secs(6));
    world.connected = true;
    world.tell(Event::Connected { session_present: true, receive_maximum: Some(20) });
    world.tell(Event::Subscribed { refusals: Vec::new() });
    assert_eq!(world.lane.totals().window, 20);
    for _ in 0..100 {
        world.step(Step::Publish { points: 1, qos1: true, broken: false });
    }
    assert_eq!(world.lane.totals().window, 1_000);
}

#[test]
fn batches_close_at_rows_max_and_a_slow_server_gets_larger_ones() {
    let mut world = World::new(lane_settings(5));
    for _ in 0..43 {
        world.step(Step::Publish { points: 1, qos1: true, broken: false });
    }
    assert_eq!(world.inserting.iter().map(Batch::rows).collect::<Vec<_>>(), [5, 5], "both slots");
    world.settle(0);
    assert_eq!(world.inserting[1].rows(), 33, "the rest in one block");
}

#[test]
fn with_half_the_window_unacknowledged_a_slow_insert_sends_everything_to_the_spool() {
    let settings = Settings { spool: true, receive_maximum: 100, ..lane_settings(5) };
    let mut world = World::new(settings);
    let publish = |world: &mut World, messages: u32| {
        for _ in 0..messages {
            world.step(Step::Publish { points: 1, qos1: true, broken: false });
        }
    };
    publish(&mut world, 49);
    world.wait(Duration::from_millis(500));
    assert!(world.spooling.is_none(), "less than half the window");
    publish(&mut world, 1);
    world.tell(Event::Tick);
    assert_eq!(world.save_wanted.len(), 2, "acknowledgements leave in order: both slots first");
    assert_eq!(world.spooling.as_ref().map(Batch::rows), Some(40), "and all that waits");
    world.spool();
    assert_eq!(world.acked.len(), 50);
    assert_eq!(world.inserting.len(), 2, "the attempts go on");
    assert_eq!(world.lane.totals().spooled, 40);
    world.settle(0);
    assert_eq!((world.lane.totals().inserted, world.lane.totals().in_flight), (5, 5));
}

#[test]
fn leaving_saves_what_no_server_takes() {
    let mut world = World::new(Settings { spool: true, ..lane_settings(2) });
    for _ in 0..9 {
        world.step(Step::Publish { points: 1, qos1: true, broken: false });
    }
    world.step(Step::Leave);
    world.wait(Duration::from_secs(11));
    assert!(!matches!(world.lane.link(), Link::Ended | Link::Closing { .. }));
    world.wait(Duration::from_secs(2));
    world.spool();
    world.tell(Event::Tick);
    assert_eq!(world.acked.len(), 9);
    assert!(
        matches!(world.lane.link(), Link::Closing { .. }),
        "a hanging insert does not hold a saved batch"
    );
}

#[test]
fn an_array_may_span_batches_and_is_acknowledged_after_its_last() {
    let mut world = World::new(lane_settings(4));
    world.step(Step::Publish { points: 6, qos1: true, broken: false });
    assert_eq!(world.inserting[0].rows(), 4);
    world.settle(0);
    assert!(world.acked.is_empty(), "two points are not stored yet");
    world.wait(Duration::from_millis(1_000));
    world.settle(0);
    assert_eq!(world.acked.len(), 6);
}

#[test]
fn unsent_rows_of_a_kept_session_are_abandoned_and_those_of_a_lost_one_kept() {
    for session_kept in [true, false] {
        let mut world = World::new(lane_settings(100));
        world.step(Step::Publish { points: 3, qos1: true, broken: false });
        world.step(Step::Publish { points: 2, qos1: false, broken: false });
        world.disconnect(session_kept);
        assert_eq!(world.lane.totals().abandoned, if session_kept { 3 } else { 0 });
        world.finish();
        assert_eq!(world.stored.len(), 5, "QoS 0 rows are kept either way");
        assert_eq!(world.lane.totals().inserted, 5);
    }
}

#[test]
fn a_full_buffer_sheds_qos_0_holds_qos_1_and_then_hangs_up() {
    let settings = lane_settings(10);
    let mut world = World::new(Settings { receive_maximum: 60_000, ..settings });
    while !world.lane.is_holding() {
        world.step(Step::Publish { points: 5, qos1: true, broken: false });
    }
    world.step(Step::Publish { points: 5, qos1: false, broken: false });
    assert_eq!(world.lane.totals().shed, 5);
    assert_eq!(world.lane.totals().stalls, 1);
    world.wait(Duration::from_secs(11));
    assert!(matches!(world.lane.link(), Link::Resting { .. }), "held for ten seconds, then closed");
    world.wait(Duration::from_secs(20));
    assert!(matches!(world.lane.link(), Link::Resting { .. }), "and not opened while it is full");
    while !world.inserting.is_empty() {
        world.settle(0);
    }
    world.wait(Duration::from_secs(1));
    assert!(matches!(world.lane.link(), Link::Connecting));
}

#[test]
fn another_client_with_our_id_is_told_and_given_time() {
    let mut world = World::new(lane_settings(10));
    world.connected = false;
    world.tell(Event::Disconnected { taken_over: true });
    world.wait(Duration::from_secs(29));
    assert!(matches!(world.lane.link(), Link::Resting { .. }));
    world.wait(Duration::from_secs(2));
    assert!(matches!(world.lane.link(), Link::Connecting));
}

#[test]
fn a_refused_subscription_is_tried_again_later() {
    let mut world = World::new(lane_settings(10));
    world.tell(Event::Disconnected { taken_over: false });
    world.wait(Duration::from_secs(6));
    world.connected = true;
    world.tell(Event::Connected { session_present: false, receive_maximum: None });
    world.tell(Event::Subscribed { refusals: vec!["no".to_owned()] });
    assert!(!world.connected, "hung up");
    assert!(matches!(world.lane.link(), Link::Resting { .. }));
}

#[test]
fn a_stop_tells_whether_the_broker_still_holds_something() {
    let stopped = |world: &mut World| {
        world.step(Step::Leave);
        while !world.inserting.is_empty() {
            world.settle(0);
        }
        world.wait(Duration::from_secs(10));
        assert_eq!(world.lane.link(), Link::Ended);
        world.lane.totals().broker_holds
    };
    let publish = Step::Publish { points: 1, qos1: true, broken: false };

    let mut world = World::new(lane_settings(10));
    world.step(publish.clone());
    world.connected = false;
    world.tell(Event::Disconnected { taken_over: false });
    assert!(stopped(&mut world), "taken, inserted, but never acknowledged");

    let mut world = World::new(lane_settings(10));
    world.connected = false;
    world.tell(Event::Disconnected { taken_over: false });
    assert!(!stopped(&mut world), "nothing was taken");

    for disconnect_sent in [true, false] {
        let mut world = World::new(lane_settings(10));
        world.step(publish.clone());
        world.step(Step::Leave);
        world.settle(0);
        world.tell(Event::Tick); // the shell's, after it has sent acknowledgements
        assert!(matches!(world.lane.link(), Link::Closing { .. }));
        if disconnect_sent {
            world.tell(Event::DisconnectSent);
        }
        world.tell(Event::Disconnected { taken_over: false });
        assert_eq!(world.lane.link(), Link::Ended);
        assert_eq!(
            world.lane.totals().broker_holds,
            !disconnect_sent,
            "an acknowledgement may not have left"
        );
    }
}
