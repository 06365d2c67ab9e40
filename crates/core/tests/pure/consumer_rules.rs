//! Decisions of the consumer, rule by rule: the test plays the broker, ClickHouse and the clocks,
//! one event at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::batch::{Limits, POSITION_BYTES_MAX};
use milepost_core::consumer::{CONNECTIONS_MAX, Connections, Consumer, Now};
use milepost_core::delivery::events::{
    BatchId, DeliveryCommand, Loaded, Outcome, Report, ServerStatus,
};
use milepost_core::delivery::policy::Delivery;
use milepost_core::delivery::{File, SpoolInventory};
use milepost_core::erased::Erased;
use milepost_core::intake::{self, Intake};
use milepost_core::session::events::{ConnectionState, Leave, SessionEvent};
use milepost_decode::Decoder;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;

use crate::model::schedule::plain;
use crate::model::server::Server;
use crate::model::{Setup, World};
use crate::rows::{self, WALL_MS, connected, consumer_settings, intake_settings, limits, payload};

const GPS: &str = "drivers/d/gps";

struct Rig {
    it: Consumer,
    began: Instant,
    now: Instant,
    packet_id: u16,
    /// Batches whose insert has begun and not ended.
    attempts: Vec<BatchId>,
    /// Batches that went to the spool.
    stored: usize,
}

impl Rig {
    fn new(setup: Setup) -> Self {
        Self::after(setup, SpoolInventory::default())
    }

    /// Builds a rig whose spool has files of an earlier process.
    fn after(setup: Setup, left: SpoolInventory) -> Self {
        let decoder = Decoder::new(&rows::sources(), limits());
        let delivery = Delivery::new(setup.delivery, left);
        let now = Instant::now();
        Self {
            it: Consumer::new(setup.consumer, Intake::new(setup.intake, decoder), delivery),
            began: now,
            now,
            packet_id: 0,
            attempts: Vec::new(),
            stored: 0,
        }
    }

    /// Reports that ClickHouse has its tables, and that the clocks agree.
    fn ready(&mut self) {
        self.it.handle_server_status(ServerStatus::ready(), self.now);
    }

    fn live(&mut self, session: usize, window: u16) {
        self.it.handle_event(session, connected(true, Some(window)), self.now);
        self.it.handle_event(session, SessionEvent::Subscribed { refusals: Vec::new() }, self.now);
    }

    fn arrives(&mut self, session: usize, qos1: bool, topic: &str, payload: &str) {
        self.packet_id += 1;
        let packet_id = qos1.then_some(self.packet_id);
        let message = Message { packet_id, ..Message::new(topic.as_bytes(), payload.as_bytes()) };
        self.it.handle_publish(session, message, rows::now(self.began, self.now - self.began));
    }

    /// Sends messages at QoS 1, one per millisecond.
    fn arrive(&mut self, session: usize, messages: u32) {
        for seq in 0..messages {
            self.arrives(session, true, GPS, &payload(&[seq]));
            self.wait(1);
        }
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.turn();
    }

    fn turn(&mut self) {
        self.it.handle_timeout(self.now);
        for session in 0..self.it.sessions() {
            while self.it.session(session).ack_due().is_some() {
                self.it.session_mut(session).ack_sent();
            }
        }
        while let Some(command) = self.it.poll_command() {
            if let DeliveryCommand::Attempt { batch, .. } = command {
                self.attempts.push(batch);
            } else if matches!(command, DeliveryCommand::Store(_)) {
                self.stored += 1;
            }
        }
    }

    /// Commits every insert that has begun. Returns their number.
    fn inserted(&mut self) -> usize {
        let attempts = std::mem::take(&mut self.attempts);
        for batch in &attempts {
            let outcome = Outcome::Inserted { took: Duration::from_millis(20), erased: 0 };
            self.it.handle_report(Report { batch: *batch, outcome }, self.now);
        }
        self.turn();
        attempts.len()
    }

    /// Returns the new log lines that contain these words; `true`: at WARN.
    fn lines(&mut self, words: &str) -> Vec<(bool, String)> {
        let notices = std::iter::from_fn(|| self.it.poll_notice());
        let lines = notices.map(|notice| (notice.is_warning(), notice.to_string()));
        lines.filter(|(_, line)| line.contains(words)).collect()
    }

    fn unready_reasons(&self) -> Vec<String> {
        self.it.unready_reasons(self.now)
    }

    /// Returns whether the session reconnects for its deferred messages.
    fn is_renewed(&self, session: usize) -> bool {
        matches!(
            self.it.session(session).connection(),
            ConnectionState::Closing { again: true, .. }
        )
    }
}

fn of_sessions(sessions: usize) -> Setup {
    Setup { consumer: consumer_settings(sessions), ..plain() }
}

#[test]
fn conservation_equation_needs_every_position_exactly_once() {
    let mut totals = Rig::new(plain()).it.totals();
    assert!(totals.adds_up(), "no message arrived");
    (totals.intake.rejected[0], totals.intake.ignored[0]) = (1, 2);
    (totals.intake.shed, totals.intake.erased, totals.delivery.erased) = (4, 8, 16);
    (totals.delivery.quarantined, totals.delivery.inserted, totals.delivery.in_spool) =
        (32, 64, 128);
    (totals.intake.in_flight, totals.delivery.in_flight) = (256, 512);
    totals.delivery.dropped = 1_024;
    (totals.intake.received, totals.delivery.spool_at_start) = (2_000, 47);
    assert!(totals.adds_up(), "{totals:?}");
    totals.intake.received += 1;
    assert!(!totals.adds_up(), "{totals:?}");
}

#[test]
fn erased_list_applies_from_the_next_message_on() {
    let mut rig = Rig::new(plain());
    rig.live(0, 100);
    let topic = "drivers/e/gps";
    rig.arrives(0, true, topic, &payload(&[1]));
    rig.it.set_erased(Arc::new(Erased::new(["e".to_owned()])));
    rig.arrives(0, true, topic, &payload(&[2]));
    rig.arrives(0, true, GPS, &payload(&[3]));
    let totals = rig.it.totals();
    assert_eq!((totals.erased(), totals.in_flight(), totals.adds_up()), (1, 2, true), "{totals:?}");
}

#[test]
fn encrypted_messages_are_counted_and_logged_once() {
    let mut rig = Rig::new(plain());
    rig.live(0, 100);
    let words = "OwnTracks messages are encrypted";
    rig.turn();
    assert_eq!(rig.lines(words).len(), 0);
    for _ in 0..3 {
        rig.arrives(0, true, "owntracks/phone", r#"{"_type":"encrypted","data":"AAAA"}"#);
        rig.turn();
    }
    assert_eq!(rig.lines(words).len(), 1);
    let totals = rig.it.totals();
    assert_eq!((totals.intake.received, totals.adds_up()), (3, true), "{totals:?}");
}

#[test]
fn leaving_process_is_idle_once_no_replay_runs() {
    let file = File { sequence: 0, positions: 1, tag: 1, bytes: 100 };
    let mut rig =
        Rig::after(plain(), SpoolInventory { files: vec![file], ..SpoolInventory::default() });
    let is = |rig: &Rig| [rig.it.is_replaying(), rig.it.has_ended(), rig.it.is_idle()];
    rig.it.handle_timeout(rig.now);
    assert_eq!(is(&rig), [false, false, false], "it is unknown whether the tables exist");
    rig.ready();
    rig.it.handle_timeout(rig.now);
    assert_eq!(is(&rig), [true, false, false]);
    rig.it.leave(Leave::KeepSession, rig.now);
    rig.it.handle_timeout(rig.now);
    assert_eq!(is(&rig), [true, true, false]);
    let Some(DeliveryCommand::Load(batch, _)) = rig.it.poll_command() else {
        panic!("it reads the file")
    };
    let outcome = Outcome::Loaded(Loaded::Newer("format 9".to_owned()));
    rig.it.handle_report(Report { batch, outcome }, rig.now);
    assert_eq!(is(&rig), [false, true, true], "the file stays for the next run");
}

#[test]
fn leaving_before_the_first_connection_still_unsubscribes() {
    let mut rig = Rig::new(plain());
    rig.it.leave(Leave::Unsubscribe, rig.now);
    rig.turn();
    assert_eq!((rig.it.has_ended(), rig.it.totals().still_subscribed), (false, true));
}

#[test]
fn smallest_window_counts_members_only() {
    let mut rig = Rig::new(of_sessions(2));
    rig.live(0, 30);
    rig.live(1, 20);
    rig.turn();
    rig.live(2, 10); // a visit
    assert_eq!(rig.it.smallest_window(), 20);
}

#[test]
fn small_windows_are_logged_once_after_all_sessions_connected() {
    for (sessions, wanted, lines) in [(1, 19, 0), (1, 20, 0), (1, 21, 1), (0, 21, 0)] {
        let mut setup = of_sessions(sessions);
        setup.consumer.window_wanted = wanted;
        let mut rig = Rig::new(setup);
        let words = "unacknowledged messages over";
        if sessions > 0 {
            rig.turn();
            assert_eq!(
                (rig.lines(words), rig.it.sessions()),
                (Vec::new(), sessions),
                "no visit before that"
            );
            rig.live(0, 20);
        }
        (0..3).for_each(|_| rig.turn());
        let logged = rig.lines(words);
        assert_eq!(logged.len(), lines, "{sessions} sessions, {wanted}: {logged:?}");
        let is_warned = |(warns, line): &(bool, String)| *warns && line.contains("allows 20 ");
        assert!(logged.iter().all(is_warned), "{logged:?}");
    }
}

#[test]
fn small_windows_open_at_most_64_sessions() {
    let mut setup = plain();
    (setup.consumer.connections, setup.consumer.window_wanted) = (Connections::Auto, 10_000);
    let mut rig = Rig::new(setup);
    rig.ready();
    let unsubscribed = |index| format!("session {index}: not subscribed yet");
    let [first, second, third] = [0, 1, 2].map(unsubscribed);
    assert_eq!(rig.unready_reasons(), [first, second, third, "and 1 more session".to_owned()]);
    (0..4).for_each(|session| rig.live(session, 10));
    rig.turn();
    assert_eq!(rig.it.sessions(), CONNECTIONS_MAX);
    let grown = rig.lines("one more session, now ");
    assert_eq!(grown.iter().filter(|(warns, _)| !warns).count(), CONNECTIONS_MAX - 4);
    assert_eq!(rig.unready_reasons(), [""; 0], "60 of them have not been subscribed");
    rig.live(4, 10);
    rig.it.handle_event(
        4,
        SessionEvent::Disconnected { taken_over: false, why: "cut".to_owned() },
        rig.now,
    );
    assert_eq!(rig.unready_reasons(), ["session 4: no connection for 0 s: cut"]);
}

#[test]
fn acks_stalled_for_20_s_make_unready() {
    let mut setup = plain();
    setup.intake.batch.age_max = Duration::from_secs(60);
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.publish(1, true, false);
    for _ in 0..4 {
        (0..5).for_each(|_| world.publish(1, true, false)); // a batch, and one message that waits for the next one
        world.wait(Duration::from_secs(15));
        assert_eq!(world.consumer.session(0).unacked(), 1);
        assert_eq!(world.consumer.unready_reasons(world.instant()), [""; 0]);
    }
    world.wait(Duration::from_millis(4_900));
    assert_eq!(world.consumer.unready_reasons(world.instant()), [""; 0]);
    world.wait(Duration::from_millis(200));
    let stalled = "acknowledgements: none for 20 s, and 1 messages wait";
    assert_eq!(world.consumer.unready_reasons(world.instant()), [stalled]);
}

/// A session without rows in the open batch is not probed: no acknowledgement would end that probe,
/// and it prevents the next one.
#[test]
fn silence_closes_the_batch_and_probes_only_waiting_sessions() {
    let mut setup = of_sessions(2);
    setup.intake = intake_settings(300);
    setup.intake.batch.age_max = Duration::from_secs(60);
    let mut rig = Rig::new(setup);
    rig.ready();
    (0..2).for_each(|session| rig.live(session, 1_000));
    rig.turn();
    rig.arrive(0, 300);
    assert_eq!(rig.inserted(), 1, "it was full");
    rig.arrive(1, 200);
    assert_eq!(rig.attempts.len(), 0, "the first session is silent, and none of its rows waits");
    rig.wait(150);
    assert_eq!(rig.inserted(), 1);
    rig.arrive(0, 200);
    rig.wait(150);
    assert_eq!(rig.attempts.len(), 1, "the first session is silent while its rows wait");
}

/// Builds a rig whose buffer has room for eight batches. Each has ten rows, and closes at the first
/// row of the next one.
fn of_eight_batches() -> Rig {
    let mut setup = plain();
    let bytes_max = 10 * POSITION_BYTES_MAX;
    let batch = Limits { rows_max: 1_000, age_max: Duration::from_secs(60), bytes_max };
    setup.intake = intake::IntakeConfig { batch, buffer_bytes_max: 8 * bytes_max };
    setup.consumer.buffer_bytes_max = 8 * bytes_max;
    (setup.delivery.inserts_in_flight, setup.delivery.spool) = (1, true);
    let mut rig = Rig::new(setup);
    rig.ready();
    rig.live(0, 1_000);
    rig.turn();
    rig
}

/// Fills the buffer with this many waiting batches, besides the one being inserted and the open
/// one.
fn fill(rig: &mut Rig, batches: usize) {
    (0..batches + 2).for_each(|_| rig.arrives(0, false, GPS, &payload(&[0; 10])));
    rig.turn();
}

#[test]
fn session_reconnects_when_half_its_buffer_share_is_free() {
    let mut rig = of_eight_batches();
    assert_eq!(rig.it.sessions(), 4, "with three visits, so a share is two batches");
    fill(&mut rig, 8);
    assert_eq!((rig.it.totals().intake.shed, rig.it.totals().in_flight()), (0, 100));
    rig.arrives(0, true, GPS, &payload(&[1]));
    rig.turn();
    assert_eq!((rig.it.session(0).totals().messages_deferred, rig.is_renewed(0)), (1, false));
    assert!(!rig.it.holds_back(rig.now), "at QoS 1 acknowledgements do");
    assert_eq!(rig.inserted(), 1);
    assert!(rig.is_renewed(0));
}

#[test]
fn half_full_buffer_spools_a_slow_insert() {
    for (batches, stores) in [(3, false), (4, true)] {
        let mut rig = of_eight_batches();
        fill(&mut rig, batches);
        rig.wait(300);
        assert_eq!((rig.attempts.len(), rig.stored > 0), (1, stores), "{batches} batches wait");
    }
}

#[test]
fn waiting_for_the_clock_does_not_spool() {
    let mut setup = of_sessions(2);
    setup.intake = intake_settings(1);
    setup.delivery.spool = true;
    let mut rig = Rig::new(setup);
    rig.ready();
    (0..2).for_each(|session| rig.live(session, 1_000));
    rig.turn();
    rig.arrives(0, true, GPS, &payload(&[1]));
    for wall_ms in [WALL_MS, 0] {
        rig.it.read_clock(Now { instant: rig.now, wall: Timestamp::from_unix_ms(wall_ms) });
    }
    rig.arrives(1, true, GPS, &payload(&[2]));
    rig.wait(300);
    assert_eq!((rig.attempts.len(), rig.stored), (1, 0));
    rig.arrives(0, true, GPS, &payload(&[3])); // and this one waits for an acknowledgement, too
    rig.turn();
    assert_eq!(rig.stored, 1);
}

#[test]
fn unusual_clock_step_counts_as_a_jump() {
    let cases = [
        (300_000, None),
        (-300_000, None),
        (300_001, Some("this host's clock jumped 300s forward")),
        (-300_001, Some("this host's clock jumped 300s back")),
    ];
    for (ms, reason) in cases {
        let mut rig = Rig::new(plain());
        for wall_ms in [WALL_MS, WALL_MS + ms] {
            rig.it.read_clock(Now { instant: rig.now, wall: Timestamp::from_unix_ms(wall_ms) });
        }
        assert_eq!(rig.it.attention(rig.now).clock_jumps, u64::from(reason.is_some()), "{ms}");
        let reasons = rig.unready_reasons().join("; ");
        assert!(reason.is_none_or(|reason| reasons.contains(reason)), "{ms}: {reasons}");
    }
}

#[test]
fn uncompared_clock_defers_only_while_it_would_reject_most() {
    let too_new = format!(r#"{{"lat":1,"lng":2,"ts":{}}}"#, WALL_MS + 3_600_000);
    let mut rig = Rig::new(of_sessions(2));
    let doubts =
        |rig: &Rig| rig.unready_reasons().iter().any(|reason| reason.starts_with("clock:"));
    (0..2).for_each(|session| rig.live(session, 100));
    rig.arrives(0, true, GPS, r#"{"lat":1,"lng":2}"#);
    assert_eq!(rig.it.session(0).unacked(), 1, "no message contradicts our clock yet");
    rig.arrives(1, false, GPS, &too_new);
    assert!(!doubts(&rig), "at QoS 0 nothing waits");
    rig.arrives(1, true, GPS, &too_new);
    rig.turn();
    assert_eq!((doubts(&rig), rig.is_renewed(1)), (true, false));
    (0..3).for_each(|seq| rig.arrives(0, true, GPS, &payload(&[seq])));
    rig.turn();
    assert_eq!(
        (doubts(&rig), rig.is_renewed(1)),
        (false, true),
        "three are fresh, two were refused"
    );
}
