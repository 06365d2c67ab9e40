//! Rules of sessions and of the intake, one by one: a consumer with a scripted broker and
//! ClickHouse.

use std::time::{Duration, Instant};

use milepost_core::batch::{Batch, POSITION_BYTES_MAX};
use milepost_core::consumer::{Consumer, ConsumerConfig};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::events::{DeliveryCommand as Work, Outcome, Report, ServerStatus};
use milepost_core::delivery::policy::Delivery;
use milepost_core::delivery::sink::FailureKind;
use milepost_core::intake::Intake;
use milepost_core::session::events::{
    ConnectionState, Leave, SessionCommand, SessionEvent, SessionTotals,
};
use milepost_decode::Message;

use crate::rows::{
    connected, consumer_settings, decoder, intake_settings, now, payload, policy_settings,
    session_settings,
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

struct Rig {
    consumer: Consumer,
    now: Instant,
    /// Commands sent to the executor.
    batches: Vec<Batch>,
    /// Batches with an insert in flight.
    attempts: Vec<u64>,
}

/// Builds a consumer; without `sessions` it only visits former sessions.
fn rig(sessions: usize, rows_max: usize) -> Rig {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let intake = Intake::new(intake_settings(rows_max), decoder());
    let consumer = Consumer::new(consumer_settings(sessions), intake, delivery);
    let mut rig = Rig { consumer, now: Instant::now(), batches: Vec::new(), attempts: Vec::new() };
    rig.clock(None);
    rig.turn();
    rig
}

impl Rig {
    fn turn(&mut self) {
        self.consumer.handle_timeout(self.now);
        while let Some(command) = self.consumer.poll_command() {
            match command {
                Work::Encode(batch) => self.batches.push(batch),
                Work::Attempt { batch, .. } => self.attempts.push(batch),
                Work::Forget(_) => {}
                Work::Abort(_)
                | Work::Store(_)
                | Work::Load(..)
                | Work::Remove(..)
                | Work::Quarantine(..)
                | Work::QuarantineRow(..) => {
                    unreachable!("there is no spool, and no silence: {command:?}")
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

    fn connected(&mut self, id: usize, session_present: bool) {
        self.event(id, connected(session_present, Some(100)));
    }

    fn live(&mut self, id: usize) {
        self.connected(id, true);
        self.event(id, SessionEvent::Subscribed { refusals: Vec::new() });
        self.turn();
    }

    fn unsuback(&mut self, id: usize) {
        self.event(id, SessionEvent::Unsubscribed { refusals: Vec::new() });
    }

    fn cut(&mut self, id: usize) {
        self.event(id, SessionEvent::Disconnected { taken_over: false, why: "cut".to_owned() });
    }

    /// Ends the connection, or fails to open it. Returns the delay of the next attempt, and
    /// advances to it.
    fn fails(&mut self, id: usize) -> Duration {
        self.cut(id);
        let connection = self.connection(id);
        let ConnectionState::BackingOff { until, .. } = connection else {
            panic!("{connection:?}")
        };
        let waits = until - self.now;
        self.wait(waits);
        waits
    }

    /// Delivers a message; `None`: at QoS 0.
    fn publish(&mut self, id: usize, packet_id: Option<u16>, points: u32) {
        let payload = payload(&(0..points).collect::<Vec<_>>());
        let message = Message { packet_id, ..Message::new(b"drivers/d/gps", payload.as_bytes()) };
        self.consumer.handle_publish(id, message, now(self.now, Duration::ZERO));
    }

    /// Reports the result of comparing this clock with ClickHouse's.
    fn clock(&mut self, off: Option<&str>) {
        let clock_off = off.map(str::to_owned);
        self.consumer
            .handle_server_status(ServerStatus { clock_off, ..ServerStatus::ready() }, self.now);
    }

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

const CLOSE: SessionCommand = SessionCommand::Disconnect { end_session: false };

#[test]
fn metrics_sum_all_sessions() {
    let mut it = rig(2, 50);
    let each = |it: &mut Rig, act: fn(&mut Rig, usize)| (0..2).for_each(|id| act(it, id));
    let mut wanted = SessionTotals { window: 2_000, ..SessionTotals::default() };
    assert_eq!(it.totals(), wanted, "nothing is announced yet");

    each(&mut it, Rig::live);
    (wanted.connected, wanted.window) = (2, 200);
    assert_eq!(it.totals(), wanted);

    each(&mut it, |it, id| it.publish(id, Some(1), 1));
    it.clock(Some("off"));
    each(&mut it, |it, id| it.publish(id, Some(2), 1));
    (wanted.messages_received, wanted.messages_deferred) = (2, 2);
    (wanted.unacked, wanted.held_by_broker) = (2, 2);
    assert_eq!(it.totals(), wanted);

    each(&mut it, Rig::cut);
    (wanted.unacked, wanted.connected) = (0, 0);
    assert_eq!(it.totals(), wanted, "the broker redelivers unacknowledged messages");

    it.wait(SECOND);
    each(&mut it, |it, id| it.connected(id, false));
    (wanted.reconnects, wanted.sessions_lost, wanted.held_by_broker) = (2, 2, 0);
    wanted.sessions_lost_at_risk = 2; // what was deferred
    assert_eq!(it.totals(), wanted);
}

#[test]
fn session_kept_at_shutdown_receives_nothing_more_and_closes() {
    for sent in [false, true] {
        let mut it = rig(1, 50);
        it.live(0);
        it.consumer.leave(Leave::KeepSession, it.now);
        it.publish(0, Some(1), 1);
        it.turn();
        assert_eq!(it.commands(0), [SessionCommand::Subscribe, CLOSE]);
        it.publish(0, Some(2), 1);
        assert_eq!(it.totals().messages_received, 0, "the broker keeps both");
        if sent {
            it.event(0, SessionEvent::DisconnectSent);
        }
        it.cut(0);
        // Without it, the last acknowledgements may not have been sent either.
        assert_eq!(it.totals().held_by_broker, u64::from(!sent));
    }
}

#[test]
fn deferred_messages_are_redelivered_after_the_next_suback() {
    let mut it = rig(1, 50);
    it.connected(0, true);
    it.clock(Some("off"));
    (1..3).for_each(|packet_id| it.publish(0, Some(packet_id), 1));
    it.clock(None);
    it.turn();
    assert_eq!(it.commands(0), [SessionCommand::Subscribe]);
    it.event(0, SessionEvent::Subscribed { refusals: Vec::new() });
    it.turn();
    assert_eq!(it.commands(0), [CLOSE]);
    let lines = it.lines().join("\n");
    assert!(lines.contains("sends 2 deferred messages again"), "{lines}");
}

#[test]
fn lost_session_counts_unacked_and_deferred_messages() {
    let mut it = rig(1, 50);
    it.live(0);
    it.publish(0, Some(1), 1);
    it.clock(Some("off"));
    it.publish(0, Some(2), 1);
    it.fails(0);
    it.connected(0, true);
    it.publish(0, Some(3), 1); // new, and before the others
    it.turn();
    let lines = it.lines().join("\n");
    assert!(lines.contains("does not resend 2 unacknowledged messages"), "{lines}");
}

#[test]
fn leaving_session_retries_within_1_s_and_member_within_5_s() {
    for (leaves, longest) in [(false, 5 * SECOND), (true, SECOND)] {
        let mut it = rig(1, 50);
        it.live(0);
        if leaves {
            it.consumer.leave(Leave::Unsubscribe, it.now);
        }
        let last = (0..8).map(|_| it.fails(0)).last().unwrap();
        assert!((longest / 2..=longest).contains(&last), "{last:?} of {longest:?}");
    }
}

#[test]
fn visit_gives_up_after_eight_attempts_unless_session_exists() {
    for is_known in [false, true] {
        let mut it = rig(0, 50);
        if is_known {
            it.connected(0, true);
        }
        for attempt in 1..10 {
            it.cut(0);
            let has_ended = it.connection(0) == ConnectionState::Ended;
            assert_eq!(has_ended, !is_known && attempt >= 8, "{attempt}");
            it.wait(5 * SECOND);
        }
    }
}

#[test]
fn unresponsive_broker_loses_the_connection() {
    for (sessions, command, asked) in [
        (1, SessionCommand::Subscribe, "our SUBSCRIBE"),
        (0, SessionCommand::Unsubscribe, "our UNSUBSCRIBE"),
    ] {
        let mut it = rig(sessions, 50);
        it.connected(0, true);
        it.wait(session_settings().answer_within);
        assert_eq!(it.commands(0), [command, SessionCommand::HangUp]);
        let lines = it.lines().join("\n");
        assert!(lines.contains(&format!("no answer to {asked} within 30s")), "{lines}");
    }
}

#[test]
fn short_connections_are_logged_until_the_likely_cause_is() {
    let (mut it, mut lines) = (rig(1, 50), Vec::new());
    for _ in 0..10 {
        it.live(0);
        it.wait(SECOND);
        it.fails(0);
        lines.extend(it.lines());
    }
    let counts =
        ["connected; ", "subscribed", "no connection: cut", "the broker closed 3 connections"]
            .map(|words| lines.iter().filter(|line| line.starts_with(words)).count());
    assert_eq!(counts, [4, 4, 3, 1], "{lines:#?}");
}

/// A broker that is silent may be busy, so the second UNSUBACK decides. Queued messages follow the
/// first one.
#[test]
fn session_is_empty_after_a_quiet_second_and_second_unsuback() {
    let mut it = rig(1, 1);
    it.live(0);
    assert!(!it.consumer.totals().still_subscribed);
    it.consumer.leave(Leave::Unsubscribe, it.now);
    it.turn();
    assert_eq!(it.commands(0), [SessionCommand::Subscribe, SessionCommand::Unsubscribe]);
    assert!(it.consumer.totals().still_subscribed);

    it.unsuback(0);
    assert!(!it.consumer.totals().still_subscribed);
    it.turn();
    it.wait(600 * MS);
    it.publish(0, None, 1);
    it.wait(999 * MS);
    it.publish(0, Some(1), 1);
    it.wait(5 * SECOND);
    assert_eq!(it.commands(0), [], "the broker may wait for an acknowledgement");
    it.acknowledge();
    it.wait(999 * MS);
    assert_eq!(it.commands(0), []);
    it.wait(MS);
    assert_eq!(it.commands(0), [SessionCommand::Unsubscribe]);

    it.unsuback(0);
    it.cut(0);
    it.turn();
    assert!(
        matches!(it.connection(0), ConnectionState::BackingOff { .. }),
        "{:?}",
        it.connection(0)
    );
    it.wait(SECOND);
    it.connected(0, true);
    for _ in 0..2 {
        assert_eq!(it.commands(0), [SessionCommand::Unsubscribe]);
        it.unsuback(0);
        it.wait(SECOND);
    }
    assert_eq!(it.commands(0), [CLOSE]);
}

#[test]
fn read_of_several_batches_fills_the_whole_demand() {
    let mut settings = intake_settings(10);
    settings.buffer_bytes_max = 5 * POSITION_BYTES_MAX;
    let mut it = rig(1, 10);
    it.consumer = Consumer::new(
        consumer_settings(1),
        Intake::new(settings, decoder()),
        Delivery::new(policy_settings(), SpoolInventory::default()),
    );
    it.clock(None);
    it.live(0);
    (1..=20).for_each(|packet_id| it.publish(0, Some(packet_id), 1));
    assert_eq!((it.totals().messages_received, it.totals().messages_deferred), (20, 0));
}

#[test]
fn messages_of_one_read_share_a_batch_that_closes_early() {
    let mut it = rig(1, 50);
    it.live(0);
    it.consumer.leave(Leave::Unsubscribe, it.now);
    it.publish(0, Some(1), 1);
    it.turn();
    it.now += 150 * MS; // the thread was busy
    (2..4).for_each(|packet_id| it.publish(0, Some(packet_id), 1));
    it.turn();
    assert_eq!(it.batches.iter().map(Batch::rows).collect::<Vec<_>>(), [3]);
}

#[test]
fn batches_are_halved_after_a_too_large_insert() {
    let mut it = rig(1, 10_000);
    it.live(0);
    let points = u32::try_from((1 << 20) * 3 / 4 / POSITION_BYTES_MAX).unwrap();
    it.publish(0, Some(1), points);
    it.wait(SECOND);
    assert_eq!(it.batches.len(), 1);
    it.answer(|| Outcome::Failed { kind: FailureKind::TooLarge, why: "413".to_owned() });
    it.publish(0, Some(2), points);
    it.wait(SECOND);
    let bytes: Vec<usize> = it.batches.iter().map(|batch| batch.bytes).collect();
    assert!(bytes[1] <= bytes[0] / 2, "{bytes:?}");
}

/// EMQX's defaults allow 32 messages in flight: at a rate above that the others wait in its queue.
#[test]
fn full_window_is_an_unready_reason_with_the_setting() {
    for (wanted, advice) in
        [(4_000, "raise mqtt.max_inflight to 32000"), (100, "ClickHouse stores less")]
    {
        let mut it = rig(1, 50);
        let settings = ConsumerConfig { window_wanted: wanted, ..consumer_settings(1) };
        let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
        it.consumer =
            Consumer::new(settings, Intake::new(intake_settings(50), decoder()), delivery);
        it.clock(None);
        it.live(0); // a window of 100
        (1..=100).for_each(|id| it.publish(0, Some(id), 1));
        let full_for = |it: &mut Rig, seconds: u32| {
            (0..seconds * 50).for_each(|_| it.wait(SECOND / 50));
            it.consumer.unready_reasons(it.now).join("\n")
        };
        let reasons = full_for(&mut it, 9);
        assert!(!reasons.contains("window:"), "{reasons}");
        let reasons = full_for(&mut it, 3);
        assert!(reasons.contains("window: full for 1") && reasons.contains(advice), "{reasons}");
        assert!(it.consumer.totals().window_full_for >= 10 * SECOND);
        it.cut(0);
        let reasons = full_for(&mut it, 1);
        assert!(!reasons.contains("window:"), "without a connection there is no window: {reasons}");
    }
}
