//! Tests the rules of sessions and of the intake, one per test, on a consumer with a scripted
//! broker and a scripted ClickHouse.

use std::time::{Duration, Instant};

use milepost_core::batch::{Batch, POSITION_BYTES_MAX};
use milepost_core::consumer::{Consumer, ConsumerConfig};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::events::{
    ClockComparison, DeliveryCommand, Outcome, Report, ServerStatus,
};
use milepost_core::delivery::policy::{Delivery, DeliveryConfig};
use milepost_core::delivery::sink::FailureKind;
use milepost_core::intake::Intake;
use milepost_core::session::events::{
    ConnectionState, Leave, SessionCommand, SessionEvent, SessionTotals,
};
use milepost_decode::Message;

use crate::rows::{
    consumer_settings, decoder, intake_settings, new_session, now, payload, policy_settings,
    resumed, session_settings,
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A consumer. The test acts as the broker and ClickHouse.
struct Rig {
    consumer: Consumer,
    now: Instant,
    /// Batches sent to the executor.
    batches: Vec<Batch>,
    /// Batches with an insert in flight.
    attempts: Vec<u64>,
}

/// Builds a consumer with this many sessions, and batches of at most `rows_max` rows. With 0
/// `sessions`, the consumer only visits former sessions.
fn rig(sessions: usize, rows_max: usize) -> Rig {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let intake = Intake::new(intake_settings(rows_max), decoder());
    let consumer = Consumer::new(consumer_settings(sessions), intake, delivery);
    let mut rig = Rig { consumer, now: Instant::now(), batches: Vec::new(), attempts: Vec::new() };
    rig.report_clock(None);
    rig.turn();
    rig
}

impl Rig {
    fn turn(&mut self) {
        self.consumer.handle_timeout(self.now);
        while let Some(command) = self.consumer.poll_command() {
            match command {
                DeliveryCommand::Encode(batch) => self.batches.push(batch),
                DeliveryCommand::Attempt { batch, .. } => self.attempts.push(batch),
                DeliveryCommand::Forget(_) => {}
                DeliveryCommand::Abort(_)
                | DeliveryCommand::Store(_)
                | DeliveryCommand::Load(..)
                | DeliveryCommand::Remove(..)
                | DeliveryCommand::Quarantine(..)
                | DeliveryCommand::QuarantineRow(..) => {
                    unreachable!("{command:?} needs a spool, or a server that is silent")
                }
            }
        }
    }

    fn wait(&mut self, duration: Duration) {
        self.now += duration;
        self.turn();
    }

    fn event(&mut self, id: usize, event: SessionEvent) {
        self.consumer.handle_event(id, event, self.now);
    }

    /// Handles a CONNACK that resumes the session, with a window of 100.
    fn resume(&mut self, id: usize) {
        self.event(id, resumed(Some(100)));
    }

    /// Handles a CONNACK of a new session, with a window of 100.
    fn connect_to_new_session(&mut self, id: usize) {
        self.event(id, new_session(Some(100)));
    }

    fn go_live(&mut self, id: usize) {
        self.resume(id);
        self.event(id, SessionEvent::Subscribed { refusals: Vec::new() });
        self.turn();
    }

    fn unsuback(&mut self, id: usize) {
        self.event(id, SessionEvent::Unsubscribed { refusals: Vec::new() });
    }

    fn cut(&mut self, id: usize) {
        self.event(id, SessionEvent::Disconnected { taken_over: false, why: "cut".to_owned() });
    }

    /// Ends the connection, or fails the attempt to open it. Advances to the next attempt, and
    /// returns the delay before it.
    fn fail(&mut self, id: usize) -> Duration {
        self.cut(id);
        let connection = self.connection(id);
        let ConnectionState::BackingOff { until, .. } = connection else {
            panic!("{connection:?}")
        };
        let delay = until - self.now;
        self.wait(delay);
        delay
    }

    /// Delivers a message, at QoS 0 if `packet_id` is `None`.
    fn publish(&mut self, id: usize, packet_id: Option<u16>, points: u32) {
        let payload = payload(&(0..points).collect::<Vec<_>>());
        let message = Message { packet_id, ..Message::new(b"drivers/d/gps", payload.as_bytes()) };
        self.consumer.handle_publish(id, message, now(self.now, Duration::ZERO));
    }

    /// Reports the result of comparing this clock with ClickHouse's.
    fn report_clock(&mut self, fault: Option<&str>) {
        let clock = Some(ClockComparison { fault: fault.map(str::to_owned), jumps: 0 });
        self.consumer
            .handle_server_status(ServerStatus { clock, ..ServerStatus::ready() }, self.now);
    }

    /// Reports this outcome for every insert in flight.
    fn answer(&mut self, outcome: impl Fn() -> Outcome) {
        for batch in std::mem::take(&mut self.attempts) {
            self.consumer.handle_report(Report { batch, outcome: outcome() }, self.now);
        }
        self.turn();
    }

    /// Completes every insert and every acknowledgement.
    fn acknowledge(&mut self) {
        self.answer(|| Outcome::Inserted { took: MS, erased: 0 });
        for id in 0..self.consumer.sessions() {
            while self.consumer.session(id).ack_due().is_some() {
                self.consumer.session_mut(id).ack_sent();
            }
        }
        self.turn();
    }

    fn connection(&self, id: usize) -> ConnectionState {
        self.consumer.session(id).connection()
    }

    fn commands(&mut self, id: usize) -> Vec<SessionCommand> {
        std::iter::from_fn(|| self.consumer.session_mut(id).poll_command()).collect()
    }

    fn lines(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.consumer.poll_notice())
            .map(|notice| notice.to_string())
            .collect()
    }

    fn totals(&self) -> SessionTotals {
        self.consumer.totals().sessions
    }
}

/// Closes the connection; the broker keeps the session.
const CLOSE: SessionCommand = SessionCommand::Disconnect { end_session: false };

#[test]
fn totals_are_summed_over_all_sessions() {
    let mut rig = rig(2, 50);
    let for_both_sessions =
        |rig: &mut Rig, act: fn(&mut Rig, usize)| (0..2).for_each(|id| act(rig, id));
    let mut expected = SessionTotals { window: 2_000, ..SessionTotals::default() };
    assert_eq!(rig.totals(), expected, "no CONNACK has announced a window yet");

    for_both_sessions(&mut rig, Rig::go_live);
    (expected.connected, expected.window) = (2, 200);
    assert_eq!(rig.totals(), expected);

    for_both_sessions(&mut rig, |rig, id| rig.publish(id, Some(1), 1));
    rig.report_clock(Some("wrong"));
    for_both_sessions(&mut rig, |rig, id| rig.publish(id, Some(2), 1));
    (expected.messages_received, expected.messages_deferred) = (2, 2);
    (expected.unacked, expected.held_by_broker) = (2, 2);
    assert_eq!(rig.totals(), expected);

    for_both_sessions(&mut rig, Rig::cut);
    (expected.unacked, expected.connected) = (0, 0);
    assert_eq!(rig.totals(), expected, "the broker redelivers unacknowledged messages");

    rig.wait(SECOND);
    for_both_sessions(&mut rig, |rig, id| rig.connect_to_new_session(id));
    (expected.reconnects, expected.sessions_lost, expected.held_by_broker) = (2, 2, 0);
    expected.sessions_lost_at_risk = 2; // the deferred messages
    assert_eq!(rig.totals(), expected);
}

#[test]
fn session_kept_at_shutdown_receives_nothing_more_and_closes() {
    for sent in [false, true] {
        let mut rig = rig(1, 50);
        rig.go_live(0);
        rig.consumer.leave(Leave::KeepSession, rig.now);
        rig.publish(0, Some(1), 1);
        rig.turn();
        assert_eq!(rig.commands(0), [SessionCommand::Subscribe, CLOSE]);
        rig.publish(0, Some(2), 1);
        assert_eq!(rig.totals().messages_received, 0, "both messages stay with the broker");
        if sent {
            rig.event(0, SessionEvent::DisconnectSent);
        }
        rig.cut(0);
        // Unless DISCONNECT was sent, the last acknowledgements may not have been sent either.
        assert_eq!(rig.totals().held_by_broker, u64::from(!sent));
    }
}

/// The broker sends deferred messages to the next connection only, and the process opens none.
#[test]
fn deferred_messages_of_a_leaving_process_are_left_with_the_broker() {
    for (leaves_first, held) in [(true, 0), (false, 1)] {
        let mut rig = rig(1, 50);
        rig.go_live(0);
        rig.report_clock(Some("wrong"));
        if leaves_first {
            rig.consumer.leave(Leave::KeepSession, rig.now);
        }
        rig.publish(0, Some(1), 1);
        rig.consumer.leave(Leave::KeepSession, rig.now);
        rig.turn();
        rig.event(0, SessionEvent::DisconnectSent);
        rig.cut(0);
        rig.turn();
        let SessionTotals { unacked, held_by_broker, .. } = rig.totals();
        assert_eq!((rig.consumer.has_ended(), unacked, held_by_broker), (true, 0, held));
    }
}

/// Another process with the same client id has replaced this one, and uses the session.
#[test]
fn leaving_process_does_not_take_back_a_session_that_was_taken_over() {
    for (case, leaves_at) in [("before", 0), ("while it waits", 1), ("at the next attempt", 31)] {
        let mut rig = rig(1, 50);
        rig.go_live(0);
        let leave = |rig: &mut Rig| {
            rig.consumer.leave(Leave::Unsubscribe, rig.now);
            rig.turn();
        };
        if leaves_at == 0 {
            leave(&mut rig);
        }
        rig.commands(0);
        rig.event(0, SessionEvent::Disconnected { taken_over: true, why: "taken".to_owned() });
        rig.wait(leaves_at * SECOND);
        if leaves_at > 0 {
            leave(&mut rig);
        }
        assert_eq!(
            (rig.connection(0), rig.commands(0)),
            (ConnectionState::Ended, vec![]),
            "{case}"
        );
        assert!(!rig.consumer.totals().still_subscribed && rig.consumer.has_ended(), "{case}");
        // The other client may be gone since, so the exit code must not say that all is done.
        let warnings: Vec<String> = std::iter::from_fn(|| rig.consumer.poll_notice())
            .filter(|notice| notice.is_warning() && notice.to_string().contains("as it is"))
            .map(|notice| notice.to_string())
            .collect();
        assert!(warnings.len() == 1, "{case}: {warnings:?}");
        assert!(warnings[0].contains("run `milepost drain`"), "{case}: {warnings:?}");
        assert_eq!(rig.totals().held_by_broker, 1, "{case}");
    }
}

/// Once this process has the session again, an earlier takeover no longer matters.
#[test]
fn leaving_process_takes_deferred_messages_of_a_session_that_was_once_taken_over() {
    let mut rig = rig(1, 50);
    rig.go_live(0);
    rig.event(0, SessionEvent::Disconnected { taken_over: true, why: "taken".to_owned() });
    rig.wait(31 * SECOND);
    rig.go_live(0);
    rig.report_clock(Some("wrong"));
    rig.publish(0, Some(1), 1);
    rig.consumer.leave(Leave::Unsubscribe, rig.now);
    rig.turn();
    rig.unsuback(0);
    rig.report_clock(None);
    rig.turn();
    rig.event(0, SessionEvent::DisconnectSent);
    rig.cut(0);
    rig.turn();
    assert_eq!(rig.connection(0), ConnectionState::Connecting, "the broker sends it again");
}

#[test]
fn deferred_messages_are_redelivered_after_the_next_suback() {
    let mut rig = rig(1, 50);
    rig.resume(0);
    rig.report_clock(Some("wrong"));
    (1..3).for_each(|packet_id| rig.publish(0, Some(packet_id), 1));
    rig.report_clock(None);
    rig.turn();
    assert_eq!(rig.commands(0), [SessionCommand::Subscribe]);
    rig.event(0, SessionEvent::Subscribed { refusals: Vec::new() });
    rig.turn();
    assert_eq!(rig.commands(0), [CLOSE]);
    let lines = rig.lines().join("\n");
    assert!(lines.contains("sends 2 deferred messages again"), "{lines}");
}

#[test]
fn missing_redeliveries_count_unacked_and_deferred_messages() {
    let mut rig = rig(1, 50);
    rig.go_live(0);
    rig.publish(0, Some(1), 1);
    rig.report_clock(Some("wrong"));
    rig.publish(0, Some(2), 1);
    rig.fail(0);
    rig.resume(0);
    rig.publish(0, Some(3), 1); // a new message, before any redelivery
    rig.turn();
    let lines = rig.lines().join("\n");
    assert!(lines.contains("does not resend 2 unacknowledged messages"), "{lines}");
}

#[test]
fn leaving_session_retries_within_1_s_and_others_within_5_s() {
    for (leaves, longest) in [(false, 5 * SECOND), (true, SECOND)] {
        let mut rig = rig(1, 50);
        rig.go_live(0);
        if leaves {
            rig.consumer.leave(Leave::Unsubscribe, rig.now);
        }
        let last_delay = (0..8).map(|_| rig.fail(0)).last().unwrap();
        assert!((longest / 2..=longest).contains(&last_delay), "{last_delay:?} of {longest:?}");
    }
}

#[test]
fn visit_gives_up_after_eight_attempts_unless_session_exists() {
    for exists in [false, true] {
        let mut rig = rig(0, 50);
        if exists {
            rig.resume(0);
        }
        for attempt in 1..10 {
            rig.cut(0);
            let has_ended = rig.connection(0) == ConnectionState::Ended;
            assert_eq!(has_ended, !exists && attempt >= 8, "attempt {attempt}");
            rig.wait(5 * SECOND);
        }
    }
}

#[test]
fn unresponsive_broker_is_disconnected() {
    for (sessions, command, request) in [
        (1, SessionCommand::Subscribe, "our SUBSCRIBE"),
        (0, SessionCommand::Unsubscribe, "our UNSUBSCRIBE"),
    ] {
        let mut rig = rig(sessions, 50);
        rig.resume(0);
        rig.wait(session_settings().answer_timeout);
        assert_eq!(rig.commands(0), [command, SessionCommand::HangUp]);
        let lines = rig.lines().join("\n");
        assert!(lines.contains(&format!("no answer to {request} within 30s")), "{lines}");
    }
}

#[test]
fn repeated_short_connections_log_their_likely_cause_once() {
    let (mut rig, mut lines) = (rig(1, 50), Vec::new());
    for _ in 0..10 {
        rig.go_live(0);
        rig.wait(SECOND);
        rig.fail(0);
        lines.extend(rig.lines());
    }
    let counts =
        ["connected; ", "subscribed", "no connection: cut", "the broker closed 3 connections"]
            .map(|words| lines.iter().filter(|line| line.starts_with(words)).count());
    assert_eq!(counts, [4, 4, 3, 1], "{lines:#?}");
}

/// Queued messages follow the first UNSUBACK. A silent broker may only be busy, so a second
/// UNSUBACK must confirm that the session is empty.
#[test]
fn session_is_empty_after_one_quiet_second_and_another_unsuback() {
    let mut rig = rig(1, 1);
    rig.go_live(0);
    assert!(!rig.consumer.totals().still_subscribed);
    rig.consumer.leave(Leave::Unsubscribe, rig.now);
    rig.turn();
    assert_eq!(rig.commands(0), [SessionCommand::Subscribe, SessionCommand::Unsubscribe]);
    assert!(rig.consumer.totals().still_subscribed);

    rig.unsuback(0);
    assert!(!rig.consumer.totals().still_subscribed);
    rig.turn();
    rig.wait(600 * MS);
    rig.publish(0, None, 1);
    rig.wait(999 * MS);
    rig.publish(0, Some(1), 1);
    rig.wait(5 * SECOND);
    assert_eq!(rig.commands(0), [], "the broker may wait for an acknowledgement");
    rig.acknowledge();
    rig.wait(999 * MS);
    assert_eq!(rig.commands(0), []);
    rig.wait(MS);
    assert_eq!(rig.commands(0), [SessionCommand::Unsubscribe]);

    rig.unsuback(0);
    rig.cut(0);
    rig.turn();
    assert!(
        matches!(rig.connection(0), ConnectionState::BackingOff { .. }),
        "{:?}",
        rig.connection(0)
    );
    rig.wait(SECOND);
    rig.resume(0);
    for _ in 0..2 {
        assert_eq!(rig.commands(0), [SessionCommand::Unsubscribe]);
        rig.unsuback(0);
        rig.wait(SECOND);
    }
    assert_eq!(rig.commands(0), [CLOSE]);
}

#[test]
fn one_read_can_fill_every_batch_in_demand() {
    let mut settings = intake_settings(10);
    settings.buffer_bytes_max = 5 * POSITION_BYTES_MAX;
    let mut rig = rig(1, 10);
    rig.consumer = Consumer::new(
        consumer_settings(1),
        Intake::new(settings, decoder()),
        Delivery::new(policy_settings(), SpoolInventory::default()),
    );
    rig.report_clock(None);
    rig.go_live(0);
    (1..=20).for_each(|packet_id| rig.publish(0, Some(packet_id), 1));
    assert_eq!((rig.totals().messages_received, rig.totals().messages_deferred), (20, 0));
}

#[test]
fn messages_of_one_read_share_a_batch_that_closes_early() {
    let mut rig = rig(1, 50);
    rig.go_live(0);
    rig.consumer.leave(Leave::Unsubscribe, rig.now);
    rig.publish(0, Some(1), 1);
    rig.turn();
    rig.now += 150 * MS; // the thread was busy
    (2..4).for_each(|packet_id| rig.publish(0, Some(packet_id), 1));
    rig.turn();
    assert_eq!(rig.batches.iter().map(Batch::rows).collect::<Vec<_>>(), [3]);
}

#[test]
fn batches_are_halved_after_a_too_large_insert_and_grow_again() {
    let mut rig = rig(1, 10_000);
    rig.go_live(0);
    let points = u32::try_from((1 << 20) * 3 / 4 / POSITION_BYTES_MAX).unwrap();
    rig.publish(0, Some(1), points);
    rig.wait(SECOND);
    assert_eq!(rig.batches.len(), 1);
    rig.answer(|| Outcome::Failed { kind: FailureKind::TooLarge, why: "413".to_owned() });
    rig.publish(0, Some(2), points);
    rig.wait(SECOND);
    let bytes = |rig: &Rig| rig.batches.iter().map(|batch| batch.bytes).collect::<Vec<_>>();
    assert!(bytes(&rig)[1] <= bytes(&rig)[0] / 2, "{:?}", bytes(&rig));
    // The operator has raised the size limit.
    while !rig.attempts.is_empty() {
        rig.acknowledge();
    }
    rig.wait(600 * SECOND);
    rig.publish(0, Some(3), points);
    rig.wait(SECOND);
    assert_eq!(bytes(&rig).last(), bytes(&rig).first(), "batches have their former size again");
}

/// A batch is complete only after every earlier one, whichever sessions their messages are from.
#[test]
fn row_that_is_too_large_and_may_not_be_dropped_holds_back_every_session() {
    for may_drop_rows in [false, true] {
        let mut rig = rig(2, 1);
        let settings = DeliveryConfig { may_drop_rows, ..policy_settings() };
        let delivery = Delivery::new(settings, SpoolInventory::default());
        let intake = Intake::new(intake_settings(1), decoder());
        rig.consumer = Consumer::new(consumer_settings(2), intake, delivery);
        rig.report_clock(None);
        for id in 0..2 {
            rig.go_live(id);
            rig.publish(id, Some(1), 1);
            rig.turn();
        }
        let &[refused, _] = &rig.attempts[..] else { panic!("{:?}", rig.attempts) };
        let failed = Outcome::Failed { kind: FailureKind::TooLarge, why: "413".to_owned() };
        rig.attempts.retain(|batch| *batch != refused);
        rig.consumer.handle_report(Report { batch: refused, outcome: failed }, rig.now);
        rig.acknowledge();
        let unacked: Vec<usize> = (0..2).map(|id| rig.consumer.session(id).unacked()).collect();
        assert_eq!(unacked, if may_drop_rows { [0, 0] } else { [1, 1] });
        let totals = rig.consumer.totals().delivery;
        assert_eq!(totals.dropped, u64::from(may_drop_rows));
        let why = "it and all messages after it, of every session, stay with the broker";
        let lines = rig.lines();
        assert_eq!(lines.iter().any(|line| line.contains(why)), !may_drop_rows, "{lines:?}");
    }
}

/// By default, EMQX allows 32 messages in flight per session; further messages wait in its queue.
#[test]
fn full_window_is_an_unready_reason_with_advice() {
    for (wanted, advice) in
        [(4_000, "raise mqtt.max_inflight to 32000"), (100, "ClickHouse stores less")]
    {
        let mut rig = rig(1, 50);
        let settings = ConsumerConfig { window_wanted: wanted, ..consumer_settings(1) };
        let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
        rig.consumer =
            Consumer::new(settings, Intake::new(intake_settings(50), decoder()), delivery);
        rig.report_clock(None);
        rig.go_live(0); // a window of 100
        (1..=100).for_each(|id| rig.publish(0, Some(id), 1));
        let full_for = |rig: &mut Rig, seconds: u32| {
            (0..seconds * 50).for_each(|_| rig.wait(SECOND / 50));
            rig.consumer.unready_reasons(rig.now).join("\n")
        };
        let reasons = full_for(&mut rig, 9);
        assert!(!reasons.contains("window:"), "{reasons}");
        let reasons = full_for(&mut rig, 3);
        assert!(reasons.contains("window: full for 1") && reasons.contains(advice), "{reasons}");
        assert!(rig.consumer.totals().window_full_for >= 10 * SECOND);
        let logged = rig.lines();
        assert_eq!(
            logged.iter().filter(|line| line.contains("window: full for 10 s")).count(),
            1,
            "logged once: {logged:?}"
        );
        rig.cut(0);
        let reasons = full_for(&mut rig, 1);
        assert!(
            !reasons.contains("window:"),
            "a session without a connection has no window: {reasons}"
        );
    }
}
