//! Tests the consumer against models of a broker, a server and a disk with random faults, over the
//! lives of several processes. Commands are executed in the shell's order: a turn first handles
//! everything that arrived, and then executes the resulting commands.
//!
//! Invariants at every step:
//!
//! - An acknowledgement names the oldest message in flight on its connection. Every point of this
//!   message is in ClickHouse or in a spool file, or its driver is erased.
//! - The counters balance (`ConsumerTotals::adds_up`), the executor's queue has room for every
//!   command, and no deadline stays in the past.
//!
//! After recovery, acknowledgements advance, and no message that the broker held or the process
//! received is missing. No row of a driver is inserted after the driver was erased.

use std::time::{Duration, Instant};

use milepost_core::Qos;
use milepost_core::consumer::Now;
use milepost_core::session::events::{ConnectionState, Leave};
use milepost_decode::Message;
use milepost_decode::position::Timestamp;
use proptest::prelude::*;

use crate::model::schedule::{plain, play, setup, step};
use crate::model::server::{Disk, Mood, Server};
use crate::model::{Backend, World};
use crate::rows::{WALL_MS, consumer_settings, intake_settings, now, payload};
use crate::saved::with_saved_seeds;

proptest! {
    #![proptest_config(with_saved_seeds(400))]

    #[test]
    fn no_message_is_lost_or_acknowledged_before_it_is_durable(
        setup in setup(),
        seed: u64,
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut world = World::new(setup, Server::new(seed), Instant::now());
        for step in steps {
            play(&mut world, step);
        }
        world.recover();
        let missing = world.missing();
        prop_assert!(missing.is_empty(), "lost: {missing:?}");
    }

    #[test]
    fn leaving_member_stores_and_acks_everything_it_received(
        setup in setup(),
        seed: u64,
        steps in prop::collection::vec(step(), 0..60),
        unsubscribe: bool,
        busy_ms in 0_u64..4_500,
    ) {
        let mut world = World::new(setup, Server::new(seed), Instant::now());
        for step in steps {
            play(&mut world, step);
        }
        world.recover();
        (0..20).for_each(|_| world.publish(2));
        world.turn();
        world.leave(if unsubscribe { Leave::Unsubscribe } else { Leave::KeepSession });
        world.turn();
        world.keep_broker_busy(Duration::from_millis(busy_ms));
        for _ in 0..300 {
            if world.consumer.has_ended() {
                break;
            }
            world.wait(Duration::from_millis(500));
        }
        prop_assert!(world.consumer.has_ended(), "{:?}", world.consumer);
        prop_assert_eq!(world.consumer.totals().in_flight(), 0);
        prop_assert_eq!(world.consumer.totals().sessions.held_by_broker, 0);
        if unsubscribe {
            // The member is unsubscribed, and its sessions are empty.
            prop_assert_eq!(world.broker.waiting(), 0);
            prop_assert!(world.broker.sessions.values().all(|session| !session.subscribed));
        }
        let connection = |index| world.consumer.session(index).connection();
        let mut sessions = 0..world.consumer.sessions();
        prop_assert!(sessions.all(|index| connection(index) == ConnectionState::Ended));
        // The next process replays the files that are left in the spool.
        world.kill();
        world.recover();
        let missing = world.missing();
        prop_assert!(missing.is_empty(), "lost: {missing:?}");
    }
}

#[test]
fn hung_disk_does_not_delay_inserts() {
    let mut setup = plain();
    setup.delivery.has_spool = true;
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.server.set_disk(Disk::Hanging, world.instant());
    world.server.set_mood(Mood::Refusing);
    (0..50).for_each(|_| world.publish(1));
    world.wait(Duration::from_secs(2));
    world.server.set_mood(Mood::Fine);
    world.wait(Duration::from_secs(10));
    assert_eq!(world.acked.len(), 50, "the server takes the batches while the disk hangs");
    let unready = world.consumer.unready_reasons(world.instant()).join("; ");
    assert!(unready.contains("spool.dir has not answered"), "{unready}");
}

#[test]
fn full_window_does_not_close_batches_of_other_sessions() {
    let mut setup = plain();
    setup.consumer = consumer_settings(2);
    setup.intake = intake_settings(1_000);
    setup.delivery.inserts_in_flight = 8;
    setup.window = 4;
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.server.set_mood(Mood::InsertsTake(60));
    let receive = |world: &mut World<Server>, session: usize, packet_id: u16| {
        let payload = payload(&[u32::from(packet_id)]);
        let publish = Message {
            packet_id: Some(packet_id),
            ..Message::new(b"drivers/d/gps", payload.as_bytes())
        };
        world.consumer.handle_publish(session, publish, now(world.instant(), Duration::ZERO));
        world.turn();
    };
    (1..=4).for_each(|packet_id| receive(&mut world, 0, packet_id));
    assert_eq!(
        world.server.attempts(),
        1,
        "the first session receives nothing more until its messages are durable"
    );
    for packet_id in 5..8 {
        receive(&mut world, 1, packet_id);
        assert_eq!(world.server.attempts(), 1, "the second session's batch may still fill up");
    }
    receive(&mut world, 1, 8);
    assert_eq!(world.server.attempts(), 2);
}

#[test]
fn deferring_session_flushes_its_rows_at_once() {
    let mut setup = plain();
    setup.intake = intake_settings(1_000);
    let mut world = World::new(setup, Server::new(1), Instant::now());
    for (fault, attempts) in [(None, 0), (Some("wrong".to_owned()), 1)] {
        world.report_clock(fault, 0);
        world.publish(1);
        world.turn();
        assert_eq!(world.server.attempts(), attempts);
    }
}

#[test]
fn slow_single_acks_do_not_count_as_a_stall() {
    let mut setup = plain();
    setup.intake = intake_settings(1);
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.server.set_mood(Mood::InsertsTake(2));
    for _ in 0..40 {
        world.publish(1);
        world.wait(Duration::from_secs(1));
        assert!(world.consumer.totals().sessions.unacked > 0);
        assert_eq!(world.consumer.unready_reasons(world.instant()), Vec::<String>::new());
    }
}

#[test]
fn half_full_window_spools_a_slow_insert() {
    for (messages, acked) in [(3, 0), (4, 4)] {
        let mut setup = plain();
        setup.delivery.has_spool = true;
        setup.window = 8;
        let mut world = World::new(setup, Server::new(1), Instant::now());
        world.server.set_mood(Mood::InsertsTake(60));
        (0..messages).for_each(|_| world.publish(1));
        world.wait(Duration::from_millis(1_200)); // the batch is closed, its insert is not slow yet
        assert_eq!(world.acked.len(), 0);
        world.wait(Duration::from_millis(200));
        assert_eq!(world.acked.len(), acked, "of {messages} messages");
    }
}

#[test]
fn full_buffer_at_qos_0_pauses_reading_before_dropping() {
    let mut setup = plain();
    setup.consumer.qos = Qos::AtMostOnce;
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.server.set_mood(Mood::InsertsTake(60));
    let read_while = |world: &mut World<Server>, held_back: bool| {
        let mut messages = 0;
        while world.consumer.holds_back(world.instant()) == held_back && messages < 100_000 {
            (0..500).for_each(|_| world.publish_at_most_once(1)); // a read of 30 KiB
            world.turn();
            messages += 500;
        }
        messages
    };
    let read = read_while(&mut world, false);
    assert!((1_000..100_000).contains(&read), "{read} messages before the pause");
    assert_eq!(world.consumer.totals().intake.shed, 0, "messages before the pause are accepted");
    world.wait(Duration::from_millis(1_900));
    assert!(world.consumer.holds_back(world.instant()));
    let remaining = Duration::from_millis(100);
    assert_eq!(world.consumer.poll_timeout(world.instant()), Some(world.instant() + remaining));
    world.wait(remaining);
    assert!(
        !world.consumer.holds_back(world.instant()),
        "reading resumes, because a broker that cannot write closes the connection"
    );
    (0..10_000).for_each(|_| world.publish_at_most_once(1));
    world.turn();
    assert!(world.consumer.totals().intake.shed > 0);
    world.wait(Duration::from_secs(120));
    assert!(read_while(&mut world, false) > 1_000, "there is room again");
    assert!(world.consumer.holds_back(world.instant()), "the next stall pauses reading again");
}

#[test]
fn silence_closes_a_batch_once() {
    let mut setup = plain();
    setup.intake = intake_settings(10_000);
    setup.intake.batch.age_max = Duration::from_secs(60);
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.server.set_mood(Mood::InsertsTake(10));
    // Returns the number of inserts in flight after the silence.
    let mut publish_and_wait = |messages, silence_ms| {
        for _ in 0..messages {
            world.publish(1);
            world.wait(Duration::from_millis(1));
        }
        world.wait(Duration::from_millis(silence_ms));
        world.server.attempts()
    };
    assert_eq!(publish_and_wait(300, 140), 0, "too short: a thread may have paused for this long");
    assert_eq!(publish_and_wait(0, 20), 1);
    assert_eq!(publish_and_wait(0, 11_000), 0, "the batch is durable, and no message followed");
    assert_eq!(publish_and_wait(300, 200), 0, "so the next silence does not close a batch");
}

#[test]
fn sessions_that_fail_together_retry_at_different_times() {
    let mut setup = plain();
    setup.consumer = consumer_settings(2);
    let mut world = World::new(setup, Server::new(1), Instant::now());
    let [first, second] = [0, 1].map(|id| {
        world.disconnect(id);
        world.consumer.session(id).connection()
    });
    assert_ne!(first, second);
}

#[test]
fn leaving_process_does_not_wait_for_the_batch_age() {
    for leave in [Leave::KeepSession, Leave::Unsubscribe] {
        let mut setup = plain();
        setup.intake = intake_settings(1_000);
        setup.intake.batch.age_max = Duration::from_secs(60);
        let mut world = World::new(setup, Server::new(1), Instant::now());
        (0..10).for_each(|_| world.publish(1));
        world.turn();
        world.leave(leave);
        // A process that keeps its session takes no more messages, so it inserts at once.
        let inserts_at_once = leave == Leave::KeepSession;
        assert_eq!(world.server.attempts(), usize::from(inserts_at_once), "{leave:?}");
        world.wait(Duration::from_secs(5));
        assert!(world.consumer.has_ended(), "{leave:?}: {:?}", world.consumer.totals());
        assert_eq!((world.acked.len(), world.durable), (10, 10));
    }
}

#[test]
fn shutdown_waits_for_inserts_of_qos_0_messages() {
    let mut world = World::new(plain(), Server::new(1), Instant::now());
    world.server.set_mood(Mood::InsertsTake(3));
    world.publish_at_most_once(1);
    world.turn();
    world.leave(Leave::KeepSession);
    world.wait(Duration::from_secs(2));
    assert_eq!(world.consumer.session(0).connection(), ConnectionState::Ended);
    assert!(!world.consumer.has_ended());
    world.wait(Duration::from_secs(2));
    assert_eq!((world.consumer.has_ended(), world.durable), (true, 1));
}

/// An insert may hang for longer than the grace period, while the spool already has its rows.
#[test]
fn shutdown_does_not_wait_for_inserts_of_stored_batches() {
    let mut setup = plain();
    setup.delivery.has_spool = true;
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.server.set_mood(Mood::Hanging);
    world.publish(1);
    world.turn();
    world.leave(Leave::KeepSession);
    world.wait(Duration::from_secs(15));
    let totals = world.consumer.totals();
    assert_eq!((world.acked.len(), totals.sessions.unacked, world.server.files()), (1, 0, 1));
    let counts = (totals.in_flight(), totals.delivery.in_spool, totals.delivery.spool_batches);
    assert_eq!((counts, totals.adds_up()), ((0, 1, 1), true), "{totals:?}");
    assert!(world.consumer.has_ended(), "{:?}", world.consumer);
    assert!(!world.consumer.is_idle(), "the insert hangs");
}

#[test]
fn shed_messages_are_logged_once_a_minute() {
    let mut setup = plain();
    setup.consumer.qos = Qos::AtMostOnce;
    let mut world = World::new(setup, Server::new(1), Instant::now());
    for _ in 0..100 {
        for fault in [Some("wrong".to_owned()), None] {
            world.report_clock(fault, 0);
            world.publish_at_most_once(1);
            world.wait(Duration::from_millis(500));
        }
    }
    let lines = world.notices.iter().filter(|line| line.contains("counted as shed")).count();
    assert_eq!((lines, world.consumer.totals().intake.shed), (2, 100));
}

#[test]
fn messages_without_a_source_are_logged_once() {
    let mut world = World::new(plain(), Server::new(1), Instant::now());
    world.server.set_mood(Mood::InsertsTake(60));
    let counts = |world: &World<Server>| {
        let lines = ["connected; ", "so far on topics that no source matches"];
        lines.map(|line| world.notices.iter().filter(|notice| notice.contains(line)).count())
    };
    assert_eq!(counts(&world), [1, 0]);
    for packet_id in 1..4 {
        let message = Message { packet_id: Some(packet_id), ..Message::new(b"elsewhere", b"{}") };
        world.consumer.handle_publish(0, message, now(world.instant(), Duration::ZERO));
        world.turn();
    }
    assert_eq!(counts(&world), [1, 1]);
}

#[test]
fn unready_reasons_name_at_most_three_disconnected_sessions() {
    for (sessions, more) in
        [(3, None), (4, Some("and 1 more session")), (5, Some("and 2 more sessions"))]
    {
        let mut setup = plain();
        setup.consumer = consumer_settings(sessions);
        let mut world = World::new(setup, Server::new(1), Instant::now());
        world.broker_up = false;
        (0..sessions).for_each(|id| world.disconnect(id));
        world.wait(Duration::from_secs(5));
        let reasons = world.consumer.unready_reasons(world.instant());
        let named = [0, 1, 2].map(|id| format!("session {id}: no connection for 5 s: cut"));
        assert_eq!((&reasons[..3], reasons.get(3).map(String::as_str)), (&named[..], more));
        assert_eq!(reasons.len(), 3 + usize::from(more.is_some()));
    }
}

#[test]
fn slow_server_is_not_treated_as_down() {
    for insert_s in [1, 7, 21, 33, 70, 300] {
        let mut world = World::new(plain(), Server::new(1), Instant::now());
        world.server.set_mood(Mood::InsertsTake(insert_s));
        (0..40).for_each(|_| world.publish(1));
        let ready =
            |world: &World<Server>| world.consumer.unready_reasons(world.instant()).is_empty();
        world.wait(Duration::from_millis(20_600));
        assert!(
            insert_s < 20 || !ready(&world),
            "an insert takes {insert_s} s, and `/readyz` gives no reason"
        );
        world.wait(Duration::from_secs(20 * insert_s));
        assert_eq!(world.acked.len(), 40, "inserts of {insert_s} s never end");
    }
}

#[test]
fn uncompared_clock_that_rejects_most_messages_defers_qos_1() {
    let fix = |ts: String| format!(r#"{{"lat":1,"lng":2,"seq":1000000{ts}}}"#);
    let too_new = fix(format!(r#","ts":{}"#, WALL_MS + 3_600_000));
    let too_old = fix(r#","ts":1000000000"#.to_owned());
    let deferred = [too_new.clone(), too_old, fix(String::new())];
    for (payload, is_wrong) in
        deferred.iter().flat_map(|payload| [(payload, false), (payload, true)])
    {
        let mut setup = plain();
        setup.consumer = consumer_settings(2);
        setup.delivery.has_spool = true;
        setup.delivery.insert_timeout = Duration::from_secs(5);
        let mut world = World::before_start(setup, Server::new(1), Instant::now());
        world.server.set_mood(Mood::Hanging);
        world.wait(Duration::from_secs(1));
        let publish_ten = |world: &mut World<Server>| {
            (0..10).for_each(|_| world.publish(1));
            world.wait(Duration::from_secs(30));
            world.consumer.totals().sessions.acks
        };
        assert_eq!(
            publish_ten(&mut world),
            10,
            "ClickHouse is down, so the batches go to the spool"
        );
        // Most messages seem too new.
        (0..100).for_each(|_| world.send(&too_new, Qos::AtMostOnce));
        world.send(payload, Qos::AtLeastOnce);
        assert_eq!(publish_ten(&mut world), 15, "one of the two sessions defers its messages");
        let files = world.server.files();
        for _ in 0..20 {
            world.publish(1);
            world.wait(Duration::from_millis(90));
        }
        let added = world.server.files() - files;
        assert!(added <= 5, "{added} files: a deferring session must not add any");
        assert_eq!(
            world.consumer.totals().intake.rejected.iter().sum::<u64>(),
            100,
            "messages at QoS 0 are not deferred"
        );
        let unready = world.consumer.unready_reasons(world.instant()).join("; ");
        assert!(unready.contains("clock: this host's clock has not been compared"), "{unready}");

        // This comparison is ignored, because ClickHouse does not answer.
        world.report_clock(is_wrong.then(|| "wrong".to_owned()), 0);
        let acks = world.consumer.totals().sessions.acks;
        world.wait(Duration::from_secs(1));
        assert!(world.consumer.totals().sessions.acks <= acks + 10);
        world.server.set_mood(Mood::Fine);
        world.wait(Duration::from_secs(60));
        let acks = world.consumer.totals().sessions.acks;
        assert_eq!(acks == 41, !is_wrong, "{acks}");
    }
}

#[test]
fn one_wrong_device_clock_does_not_defer_other_devices() {
    let mut setup = plain();
    setup.delivery.has_spool = true;
    setup.delivery.insert_timeout = Duration::from_secs(5);
    let mut world = World::before_start(setup, Server::new(1), Instant::now());
    world.server.set_mood(Mood::Hanging);
    world.wait(Duration::from_secs(1));
    (0..10).for_each(|_| world.publish(1));
    world.send(r#"{"lat":1,"lng":2,"seq":1000000,"ts":1000000000}"#, Qos::AtLeastOnce);
    world.send(r#"{"lat":1,"lng":2,"seq":1000000}"#, Qos::AtLeastOnce);
    (0..10).for_each(|_| world.publish(1));
    world.wait(Duration::from_secs(30));
    assert_eq!(
        world.consumer.totals().sessions.acks,
        22,
        "all are in the spool, one of them as a reject"
    );
}

#[test]
fn clock_jump_defers_messages_until_the_next_comparison() {
    let mut world = World::new(plain(), Server::new(1), Instant::now());
    // Reports two readings that are `seconds` apart on the monotonic clock and `wall_seconds` apart
    // on the wall clock, and returns the number of jumps so far.
    let advance_clocks = |world: &mut World<Server>, seconds: u64, wall_seconds: i64| {
        let began = world.instant();
        world.consumer.read_clock(Now { instant: began, wall: Timestamp::from_unix_ms(WALL_MS) });
        let wall = Timestamp::from_unix_ms(WALL_MS + wall_seconds * 1_000);
        world.consumer.read_clock(Now { instant: began + Duration::from_secs(seconds), wall });
        world.consumer.watcher_request(began).clock_jumps
    };
    assert_eq!(
        advance_clocks(&mut world, 100, 130),
        0,
        "a correction within the limit does not count as a jump"
    );
    assert_eq!(advance_clocks(&mut world, 100, 100 - 40 * 86_400), 1);
    (0..10).for_each(|_| world.publish(1));
    (0..20).for_each(|_| world.wait(Duration::from_millis(500)));
    assert_eq!(world.acked.len(), 0);
    let unready = world.consumer.unready_reasons(world.instant()).join("; ");
    assert!(unready.contains("jumped"), "{unready}");
    world.report_clock(None, 0);
    (0..20).for_each(|_| world.wait(Duration::from_millis(500)));
    assert_eq!(world.acked.len(), 0, "the comparison is from before the jump");
    world.report_clock(None, 1);
    (0..20).for_each(|_| world.wait(Duration::from_millis(500)));
    assert_eq!(world.acked.len(), 10);
}
