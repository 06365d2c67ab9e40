//! Tests the consumer's decisions, rule by rule: the tests act as the broker, ClickHouse and the
//! clocks, one event at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::batch::{Limits, POSITION_BYTES_MAX};
use milepost_core::consumer::{CONNECTIONS_MAX, Connections, Consumer, Now};
use milepost_core::delivery::events::{
    BatchId, DeliveryCommand, Loaded, Outcome, Report, Schema, ServerStatus,
};
use milepost_core::delivery::policy::Delivery;
use milepost_core::delivery::{File, SpoolInventory};
use milepost_core::erased::Erased;
use milepost_core::intake::{self, Intake};
use milepost_core::session::events::{ConnectionState, Leave, SessionEvent};
use milepost_decode::Decoder;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;

use crate::model::Setup;
use crate::model::schedule::plain;
use crate::rows::{self, WALL_MS, consumer_settings, intake_settings, limits, payload, resumed};

const GPS: &str = "drivers/d/gps";

/// A consumer. The test acts as the broker, ClickHouse and the clocks.
struct Rig {
    consumer: Consumer,
    began: Instant,
    now: Instant,
    /// Packet id of the last message at QoS 1.
    packet_id: u16,
    /// Batches with an insert in flight.
    attempts: Vec<BatchId>,
    /// Batches that went to the spool.
    stored: usize,
}

impl Rig {
    fn new(setup: Setup) -> Self {
        Self::with_files(setup, SpoolInventory::default())
    }

    /// Builds a rig whose spool has files of an earlier process.
    fn with_files(setup: Setup, inventory: SpoolInventory) -> Self {
        let decoder = Decoder::new(&rows::sources(), limits());
        let delivery = Delivery::new(setup.delivery, inventory);
        let now = Instant::now();
        Self {
            consumer: Consumer::new(setup.consumer, Intake::new(setup.intake, decoder), delivery),
            began: now,
            now,
            packet_id: 0,
            attempts: Vec::new(),
            stored: 0,
        }
    }

    /// Reports that ClickHouse has its tables, and that the clocks agree.
    fn report_ready(&mut self) {
        self.consumer.handle_server_status(ServerStatus::ready(), self.now);
    }

    /// Connects and subscribes a session. `window`: Receive Maximum in CONNACK.
    fn go_live(&mut self, session: usize, window: u16) {
        self.consumer.handle_event(session, resumed(Some(window)), self.now);
        self.consumer.handle_event(
            session,
            SessionEvent::Subscribed { refusals: Vec::new() },
            self.now,
        );
    }

    /// Receives a message at QoS 1.
    fn receive(&mut self, session: usize, topic: &str, payload: &str) {
        self.packet_id += 1;
        self.receive_publish(session, Some(self.packet_id), topic, payload);
    }

    /// Receives a message at QoS 0.
    fn receive_at_most_once(&mut self, session: usize, topic: &str, payload: &str) {
        self.receive_publish(session, None, topic, payload);
    }

    fn receive_publish(
        &mut self,
        session: usize,
        packet_id: Option<u16>,
        topic: &str,
        payload: &str,
    ) {
        let message = Message { packet_id, ..Message::new(topic.as_bytes(), payload.as_bytes()) };
        let now = rows::now(self.began, self.now - self.began);
        self.consumer.handle_publish(session, message, now);
    }

    /// Receives messages at QoS 1, one per millisecond.
    fn receive_many(&mut self, session: usize, messages: u32) {
        for seq in 0..messages {
            self.receive(session, GPS, &payload(&[seq]));
            self.wait(1);
        }
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.turn();
    }

    /// Runs a turn of the shell: sends all acknowledgements, and records commands.
    fn turn(&mut self) {
        self.consumer.handle_timeout(self.now);
        for session in 0..self.consumer.sessions() {
            while self.consumer.session(session).ack_due().is_some() {
                self.consumer.session_mut(session).ack_sent();
            }
        }
        while let Some(command) = self.consumer.poll_command() {
            if let DeliveryCommand::Attempt { batch, .. } = command {
                self.attempts.push(batch);
            } else if matches!(command, DeliveryCommand::Store(_)) {
                self.stored += 1;
            }
        }
    }

    /// Commits all inserts in flight, and returns their number.
    fn commit(&mut self) -> usize {
        let attempts = std::mem::take(&mut self.attempts);
        for batch in &attempts {
            let outcome = Outcome::Inserted { took: Duration::from_millis(20), erased: 0 };
            self.consumer.handle_report(Report { batch: *batch, outcome }, self.now);
        }
        self.turn();
        attempts.len()
    }

    /// Returns the new log lines that contain these words; `true`: the line is a warning.
    fn lines(&mut self, words: &str) -> Vec<(bool, String)> {
        let notices = std::iter::from_fn(|| self.consumer.poll_notice());
        let lines = notices.map(|notice| (notice.is_warning(), notice.to_string()));
        lines.filter(|(_, line)| line.contains(words)).collect()
    }

    fn unready_reasons(&self) -> Vec<String> {
        self.consumer.unready_reasons(self.now)
    }

    /// Returns whether the session is about to reconnect for its deferred messages.
    fn is_reconnecting(&self, session: usize) -> bool {
        matches!(
            self.consumer.session(session).connection(),
            ConnectionState::Closing { reconnects: true, .. }
        )
    }
}

fn setup_with(sessions: usize) -> Setup {
    Setup { consumer: consumer_settings(sessions), ..plain() }
}

#[test]
fn counters_balance_only_if_every_position_is_counted_once() {
    let mut totals = Rig::new(plain()).consumer.totals();
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
    rig.go_live(0, 100);
    let topic = "drivers/e/gps";
    rig.receive(0, topic, &payload(&[1]));
    rig.consumer.set_erased(Arc::new(Erased::new(["e".to_owned()])));
    rig.receive(0, topic, &payload(&[2]));
    rig.receive(0, GPS, &payload(&[3]));
    let totals = rig.consumer.totals();
    assert_eq!((totals.erased(), totals.in_flight(), totals.adds_up()), (1, 2, true), "{totals:?}");
}

#[test]
fn encrypted_messages_are_counted_and_logged_once() {
    let mut rig = Rig::new(plain());
    rig.go_live(0, 100);
    let words = "OwnTracks messages are encrypted";
    rig.turn();
    assert_eq!(rig.lines(words).len(), 0);
    for _ in 0..3 {
        rig.receive(0, "owntracks/phone", r#"{"_type":"encrypted","data":"AAAA"}"#);
        rig.turn();
    }
    assert_eq!(rig.lines(words).len(), 1);
    let totals = rig.consumer.totals();
    assert_eq!((totals.intake.received, totals.adds_up()), (3, true), "{totals:?}");
}

#[test]
fn leaving_process_is_idle_once_no_replay_runs() {
    let file = File { sequence: 0, positions: 1, tag: 1, bytes: 100 };
    let mut rig =
        Rig::with_files(plain(), SpoolInventory { files: vec![file], ..SpoolInventory::default() });
    let flags =
        |rig: &Rig| [rig.consumer.is_replaying(), rig.consumer.has_ended(), rig.consumer.is_idle()];
    rig.consumer.handle_timeout(rig.now);
    assert_eq!(flags(&rig), [false, false, false], "it is unknown whether the tables exist");
    rig.report_ready();
    rig.consumer.handle_timeout(rig.now);
    assert_eq!(flags(&rig), [true, false, false]);
    rig.consumer.leave(Leave::KeepSession, rig.now);
    rig.consumer.handle_timeout(rig.now);
    assert_eq!(flags(&rig), [true, true, false]);
    let Some(DeliveryCommand::Load(batch, _)) = rig.consumer.poll_command() else {
        panic!("the replay reads the file")
    };
    let outcome = Outcome::Loaded(Loaded::Newer("format 9".to_owned()));
    rig.consumer.handle_report(Report { batch, outcome }, rig.now);
    assert_eq!(flags(&rig), [false, true, true], "the file stays for the next run");
}

#[test]
fn leaving_before_the_first_connection_still_unsubscribes() {
    let mut rig = Rig::new(plain());
    rig.consumer.leave(Leave::Unsubscribe, rig.now);
    rig.turn();
    assert_eq!((rig.consumer.has_ended(), rig.consumer.totals().still_subscribed), (false, true));
}

#[test]
fn smallest_window_ignores_visits() {
    let mut rig = Rig::new(setup_with(2));
    rig.go_live(0, 30);
    rig.go_live(1, 20);
    rig.turn();
    rig.go_live(2, 10); // a visit
    assert_eq!(rig.consumer.smallest_window(), 20);
}

#[test]
fn small_windows_are_logged_once_after_all_sessions_connect() {
    for (sessions, wanted, lines) in [(1, 19, 0), (1, 20, 0), (1, 21, 1), (0, 21, 0)] {
        let mut setup = setup_with(sessions);
        setup.consumer.window_wanted = wanted;
        let mut rig = Rig::new(setup);
        let words = "unacknowledged messages over";
        if sessions > 0 {
            rig.turn();
            assert_eq!(
                (rig.lines(words), rig.consumer.sessions()),
                (Vec::new(), sessions),
                "no visits before all sessions are connected"
            );
            rig.go_live(0, 20);
        }
        (0..3).for_each(|_| rig.turn());
        let logged = rig.lines(words);
        assert_eq!(logged.len(), lines, "{sessions} sessions, {wanted} wanted: {logged:?}");
        let is_window_warning =
            |(warns, line): &(bool, String)| *warns && line.contains("allows 20 ");
        assert!(logged.iter().all(is_window_warning), "{logged:?}");
    }
}

#[test]
fn small_windows_open_at_most_64_sessions() {
    let mut setup = plain();
    (setup.consumer.connections, setup.consumer.window_wanted) = (Connections::Auto, 10_000);
    let mut rig = Rig::new(setup);
    rig.report_ready();
    let unsubscribed = |index| format!("session {index}: not subscribed yet");
    let [first, second, third] = [0, 1, 2].map(unsubscribed);
    assert_eq!(rig.unready_reasons(), [first, second, third, "and 1 more session".to_owned()]);
    (0..4).for_each(|session| rig.go_live(session, 10));
    rig.turn();
    assert_eq!(rig.consumer.sessions(), CONNECTIONS_MAX);
    let grown = rig.lines("one more session, now ");
    assert_eq!(grown.iter().filter(|(warns, _)| !warns).count(), CONNECTIONS_MAX - 4);
    assert_eq!(rig.unready_reasons(), [""; 0], "the 60 new sessions have never been subscribed");
    rig.go_live(4, 10);
    rig.consumer.handle_event(
        4,
        SessionEvent::Disconnected { taken_over: false, why: "cut".to_owned() },
        rig.now,
    );
    assert_eq!(rig.unready_reasons(), ["session 4: no connection for 0 s: cut"]);
}

/// A healthy process acknowledges nothing until its batch is due, which `batch.age_max` may delay.
#[test]
fn acks_stalled_for_20_s_or_10_s_longer_than_a_batch_waits_make_the_process_unready() {
    for (age_max, stalled_after) in [(1, 20), (10, 20), (30, 40)] {
        let mut setup = plain();
        setup.intake = intake_settings(300);
        setup.intake.batch.age_max = Duration::from_secs(age_max);
        let mut rig = Rig::new(setup);
        rig.report_ready();
        rig.go_live(0, 1_000);
        for second in 0..100 + age_max {
            if second < 100 {
                rig.receive(0, GPS, &payload(&[1]));
            }
            rig.wait(1_000);
            rig.commit();
            assert_eq!(rig.unready_reasons(), [""; 0], "{age_max} s: {second} s");
        }
        assert_eq!(rig.consumer.session(0).unacked(), 0);
        rig.receive(0, GPS, &payload(&[1]));
        rig.turn();
        // Now ClickHouse answers no insert.
        let stalls = |rig: &Rig| {
            let mut reasons = rig.unready_reasons();
            reasons.retain(|reason| reason.starts_with("acknowledgements:"));
            reasons
        };
        rig.wait(stalled_after * 1_000 - 100);
        assert_eq!(stalls(&rig), [""; 0]);
        rig.wait(200);
        let expected = format!("acknowledgements: none for {stalled_after} s, and 1 message waits");
        assert_eq!(stalls(&rig), std::slice::from_ref(&expected));
        rig.wait(1_000);
        assert_eq!(rig.lines("acknowledgements: none"), [(true, expected)], "logged once");
    }
}

/// If a session falls silent, its window may be full. To find out, a probe closes the open batch
/// early. A session without rows in this batch is not probed: the probe would bring it no
/// acknowledgement and so no answer, and an unanswered probe delays the next one.
#[test]
fn silence_closes_the_batch_and_probes_only_waiting_sessions() {
    let mut setup = setup_with(2);
    setup.intake = intake_settings(300);
    setup.intake.batch.age_max = Duration::from_secs(60);
    let mut rig = Rig::new(setup);
    rig.report_ready();
    (0..2).for_each(|session| rig.go_live(session, 1_000));
    rig.turn();
    rig.receive_many(0, 300);
    assert_eq!(rig.commit(), 1, "the batch was full");
    rig.receive_many(1, 200);
    assert_eq!(
        rig.attempts.len(),
        0,
        "the first session is silent, but none of its rows are waiting"
    );
    rig.wait(150);
    assert_eq!(rig.commit(), 1);
    rig.receive_many(0, 200);
    rig.wait(150);
    assert_eq!(rig.attempts.len(), 1, "the first session is silent, and its rows are waiting");
}

/// Builds a rig whose buffer has room for eight batches of ten rows each. A batch closes when the
/// first row of the next batch arrives.
fn rig_with_room_for_eight_batches() -> Rig {
    let mut setup = plain();
    let bytes_max = 10 * POSITION_BYTES_MAX;
    let batch = Limits { rows_max: 1_000, age_max: Duration::from_secs(60), bytes_max };
    setup.intake = intake::IntakeConfig { batch, buffer_bytes_max: 8 * bytes_max };
    setup.consumer.buffer_bytes_max = 8 * bytes_max;
    (setup.delivery.inserts_in_flight, setup.delivery.has_spool) = (1, true);
    let mut rig = Rig::new(setup);
    rig.report_ready();
    rig.go_live(0, 1_000);
    rig.turn();
    rig
}

/// Fills the buffer with this many waiting batches, in addition to the batch that is being inserted
/// and the open batch.
fn fill(rig: &mut Rig, batches: usize) {
    (0..batches + 2).for_each(|_| rig.receive_at_most_once(0, GPS, &payload(&[0; 10])));
    rig.turn();
}

#[test]
fn session_reconnects_when_half_its_buffer_share_is_free() {
    let mut rig = rig_with_room_for_eight_batches();
    assert_eq!(
        rig.consumer.sessions(),
        4,
        "one consuming session and three visits, so a share of the buffer is two batches"
    );
    fill(&mut rig, 8);
    assert_eq!((rig.consumer.totals().intake.shed, rig.consumer.totals().in_flight()), (0, 100));
    rig.receive(0, GPS, &payload(&[1]));
    rig.turn();
    assert_eq!(
        (rig.consumer.session(0).totals().messages_deferred, rig.is_reconnecting(0)),
        (1, false)
    );
    assert!(
        !rig.consumer.holds_back(rig.now),
        "at QoS 1, withheld acknowledgements hold the broker back"
    );
    assert_eq!(rig.commit(), 1);
    assert!(rig.is_reconnecting(0));
}

#[test]
fn half_full_buffer_spools_a_slow_insert() {
    for (batches, stores) in [(3, false), (4, true)] {
        let mut rig = rig_with_room_for_eight_batches();
        fill(&mut rig, batches);
        rig.wait(300);
        assert_eq!((rig.attempts.len(), rig.stored > 0), (1, stores), "{batches} batches wait");
    }
}

#[test]
fn deferring_for_the_clock_does_not_cause_spooling() {
    let mut setup = setup_with(2);
    setup.intake = intake_settings(1);
    setup.delivery.has_spool = true;
    let mut rig = Rig::new(setup);
    rig.report_ready();
    (0..2).for_each(|session| rig.go_live(session, 1_000));
    rig.turn();
    rig.receive(0, GPS, &payload(&[1]));
    for wall_ms in [WALL_MS, 0] {
        rig.consumer.read_clock(Now { instant: rig.now, wall: Timestamp::from_unix_ms(wall_ms) });
    }
    rig.receive(1, GPS, &payload(&[2]));
    rig.wait(300);
    assert_eq!((rig.attempts.len(), rig.stored), (1, 0));
    // Unlike the other session, this one also waits for an acknowledgement.
    rig.receive(0, GPS, &payload(&[3]));
    rig.turn();
    assert_eq!(rig.stored, 1);
}

#[test]
fn clock_step_above_the_limit_counts_as_a_jump() {
    let cases = [
        (300_000, None),
        (-300_000, None),
        (300_001, Some("this host's clock jumped 300s forward")),
        (-300_001, Some("this host's clock jumped 300s back")),
    ];
    for (ms, reason) in cases {
        let mut rig = Rig::new(plain());
        for wall_ms in [WALL_MS, WALL_MS + ms] {
            rig.consumer
                .read_clock(Now { instant: rig.now, wall: Timestamp::from_unix_ms(wall_ms) });
        }
        assert_eq!(
            rig.consumer.watcher_request(rig.now).clock_jumps,
            u64::from(reason.is_some()),
            "{ms} ms"
        );
        let reasons = rig.unready_reasons().join("; ");
        assert!(reason.is_none_or(|reason| reasons.contains(reason)), "{ms} ms: {reasons}");
    }
}

#[test]
fn uncompared_clock_defers_only_while_it_would_reject_most_messages() {
    let too_new = format!(r#"{{"lat":1,"lng":2,"ts":{}}}"#, WALL_MS + 3_600_000);
    let mut rig = Rig::new(setup_with(2));
    let is_clock_doubted =
        |rig: &Rig| rig.unready_reasons().iter().any(|reason| reason.starts_with("clock:"));
    (0..2).for_each(|session| rig.go_live(session, 100));
    rig.receive(0, GPS, r#"{"lat":1,"lng":2}"#);
    assert_eq!(rig.consumer.session(0).unacked(), 1, "no message contradicts this clock yet");
    rig.receive_at_most_once(1, GPS, &too_new);
    assert!(!is_clock_doubted(&rig), "at QoS 0, nothing is deferred");
    rig.receive(1, GPS, &too_new);
    rig.turn();
    assert_eq!((is_clock_doubted(&rig), rig.is_reconnecting(1)), (true, false));
    (0..3).for_each(|seq| rig.receive(0, GPS, &payload(&[seq])));
    rig.turn();
    assert_eq!(
        (is_clock_doubted(&rig), rig.is_reconnecting(1)),
        (false, true),
        "three fixes are plausible, two are too new"
    );
}

#[test]
fn refused_query_for_the_clock_is_no_comparison() {
    let too_new = format!(r#"{{"lat":1,"lng":2,"ts":{}}}"#, WALL_MS + 3_600_000);
    let mut rig = Rig::new(plain());
    let schema = Schema::Refused("wrong login".to_owned());
    let refused = ServerStatus { schema, clock: None, ..ServerStatus::ready() };
    rig.consumer.handle_server_status(refused, rig.now);
    rig.go_live(0, 100);
    rig.receive(0, GPS, &too_new);
    rig.receive(0, GPS, r#"{"lat":1,"lng":2}"#);
    let unacked = |rig: &Rig| rig.consumer.session(0).unacked();
    assert_eq!(unacked(&rig), 0, "this clock may be wrong: both messages wait");
    rig.report_ready();
    rig.turn();
    assert!(rig.is_reconnecting(0), "the broker sends them again after the comparison");
}
