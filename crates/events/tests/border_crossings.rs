//! Tests that a wrong fix causes no crossing of a fence, and that a real crossing causes an event.
//! The devices report often or rarely, sleep, or have a wrong clock or speed.
#![expect(clippy::unwrap_used, reason = "a helper may panic, which fails its test")]

#[path = "../../../tests/pure/cases.rs"]
mod cases;

use std::collections::BTreeSet;

use milepost_events::fences::rules::FenceRules;
use milepost_events::watch::{Area, Event, Fix, Kind, Limits, Rules, Watch};
use proptest::prelude::*;

/// 2025-10-09, 08:53:20 UTC, a Thursday, in Unix milliseconds.
const BEGAN: i64 = 1_760_000_000_000;
/// Seconds of an hour.
const HOUR: i64 = 3_600;
/// Degrees of longitude of a metre on the equator.
const METRE: f64 = 1.0 / 111_195.0;
/// Seconds after which a crossing counts without a second fix: `ALONE_MS` of `watch::crossing`.
const ALONE: i64 = 120;

/// Returns rules with one fence: a depot of 200 m by 200 m with its centre at 0° N, 0° E. The depot
/// is closed during these tests, and no driver inside is ever silent.
fn depot(stay_max_s: Option<u32>) -> Rules {
    let rules = FenceRules {
        stay_max_s,
        silent_for_s: Some(0),
        hours: Some("Su 03:00-03:01".to_owned()),
        ..FenceRules::default()
    };
    let half = 100.0 * METRE;
    let ring = vec![[-half, -half], [half, -half], [half, half], [-half, half], [-half, -half]];
    let area = Area::new("depot".to_owned(), 0, i64::MAX, vec![vec![ring]]);
    Rules {
        areas: vec![area.with_limits(Limits::new(rules).unwrap())],
        silent_for: Some(600_000),
        silent_gaps: 2.5,
        faster_than: None,
        fence_margin: 30.0,
    }
}

/// Returns a fix at this second, `metres` to the east of the depot's centre.
fn fix(second: i64, metres: f64, speed: Option<f64>) -> Fix {
    Fix {
        driver_id: "d1".to_owned(),
        ts: BEGAN + second * 1_000,
        seq: 0,
        lat: 0.0,
        lng: metres * METRE,
        speed,
        acc: None,
        inserted_at: BEGAN + second * 1_000,
    }
}

/// Returns the kind and the second of each event of these fixes. Ticks every five seconds until the
/// second `until`.
fn events(rules: Rules, fixes: &[Fix], until: i64) -> Vec<(Kind, i64)> {
    summary(&events_of(&mut Watch::new(rules), fixes, until))
}

/// Returns the events of these fixes. Ticks every five seconds until the second `until`.
fn events_of(watch: &mut Watch, fixes: &[Fix], until: i64) -> Vec<Event> {
    let mut out = Vec::new();
    let Some(first) = fixes.first() else { return out };
    let mut now = first.inserted_at;
    for fix in fixes {
        while now < fix.inserted_at {
            watch.tick(now, &mut out);
            now += 5_000;
        }
        watch.handle_fix(fix.clone(), &mut out);
    }
    let until = BEGAN + until * 1_000;
    while now < until {
        watch.tick(now, &mut out);
        now += 5_000;
    }
    watch.tick(until, &mut out);
    out
}

fn summary(events: &[Event]) -> Vec<(Kind, i64)> {
    events.iter().map(|event| (event.kind, (event.ts - BEGAN) / 1_000)).collect()
}

/// Returns eight hours of fixes in the depot, one every `interval` seconds. One fix of each hour,
/// the spike, is 300 m off.
fn parked(interval: i64, speed: Option<f64>) -> Vec<Fix> {
    let seconds = (0..8 * HOUR / interval).map(|n| n * interval);
    let is_spike = |second: i64| (second + HOUR / 2) % HOUR < interval;
    seconds.map(|second| fix(second, if is_spike(second) { 300.0 } else { 5.0 }, speed)).collect()
}

/// Events of a drive that begins in the depot and never leaves it.
const ENTERED: [(Kind, i64); 2] = [(Kind::Entered, 0), (Kind::OffHours, 0)];

#[test]
fn spike_of_a_parked_car_does_not_leave_the_fence() {
    for (interval, speed) in [
        (3, None),
        (15, None),
        (15, Some(0.0)),
        (60, None),
        (110, None),
        (300, Some(0.0)),
        (600, Some(0.0)),
    ] {
        let found = events(depot(None), &parked(interval, speed), 9 * HOUR);
        assert_eq!(found, ENTERED, "a fix every {interval} s, speed {speed:?}");
    }
}

#[test]
fn spike_does_not_restart_the_stay() {
    let found = events(depot(Some(7 * 3_600)), &parked(15, Some(0.0)), 9 * HOUR);
    assert_eq!(found, [&ENTERED[..], &[(Kind::Overstayed, 0)]].concat());
}

#[test]
fn spike_before_sleep_causes_neither_left_nor_silent() {
    let mut fixes: Vec<Fix> = (0..10).map(|n| fix(n * 15, 5.0, Some(0.0))).collect();
    fixes.push(fix(150, 300.0, Some(0.0)));
    assert_eq!(events(depot(None), &fixes, 12 * HOUR), ENTERED);
    // The next morning begins in the depot.
    fixes.extend((0..4).map(|n| fix(12 * HOUR + n * 15, 5.0, Some(0.0))));
    assert_eq!(events(depot(None), &fixes, 13 * HOUR), ENTERED);
    // A sleeping device can still exceed the longest stay.
    let found = events(depot(Some(3_600)), &fixes, 13 * HOUR);
    assert_eq!(found, [&ENTERED[..], &[(Kind::Overstayed, 0)]].concat());
}

#[test]
fn restart_after_a_spike_before_sleep_causes_no_left_event() {
    let mut known = Vec::new();
    let mut first = Watch::new(depot(None));
    for second in [0, 15, 30] {
        first.handle_fix(fix(second, 5.0, Some(0.0)), &mut known);
    }
    let spike = fix(45, 300.0, Some(0.0));
    first.handle_fix(spike.clone(), &mut known);
    assert_eq!(summary(&known), ENTERED);
    // A process that starts after some hours reads only the newest fix of the driver.
    let mut second = Watch::new(depot(None));
    second.restore_fix(spike);
    known.iter().for_each(|event| second.restore_event(event));
    let mut out = Vec::new();
    second.tick(BEGAN + 8 * HOUR * 1_000, &mut out);
    assert_eq!(out, []);
}

/// The car parked while no process ran, longer ago than the replayed time. It must not be silent in
/// the depot, where no driver ever is.
#[test]
fn start_finds_a_car_that_parked_while_no_process_ran() {
    let start = |metres: [f64; 3]| {
        let mut watch = Watch::new(depot(None));
        let fixes = (0_i64..).zip(metres).map(|(n, metres)| fix(n * 15, metres, Some(0.0)));
        // The query may return the newest fix twice.
        let newest = fix(30, metres[2], Some(0.0));
        fixes.chain([newest]).for_each(|fix| watch.restore_fix(fix));
        let mut out = Vec::new();
        watch.tick(BEGAN + HOUR * 1_000, &mut out);
        summary(&out)
    };
    let entered = [(Kind::Entered, 30), (Kind::OffHours, 30)];
    assert_eq!(start([1_000.0, 5.0, 5.0]), entered);
    // One fix alone may be wrong.
    assert_eq!(start([1_000.0, 1_000.0, 900.0]), [(Kind::Silent, 30)]);
    assert_eq!(start([300.0, 300.0, 5.0]), [(Kind::Silent, 30)]);
    assert_eq!(start([5.0, 5.0, 2_000.0]), [entered[0], entered[1]].map(|(kind, _)| (kind, 15)));
}

#[test]
fn wrong_fix_at_a_cold_start_causes_no_crossing() {
    for (interval, metres) in [(15, 5_000.0), (30, 5_000.0), (60, 5_000.0), (60, 700.0)] {
        let morning_fixes = |day: i64| {
            let morning = day * 24 * HOUR;
            let at = move |n: i64| morning + n * interval;
            let parked = (1..6).map(move |n| fix(at(n), 5.0, None));
            std::iter::once(fix(morning, if day == 0 { 5.0 } else { metres }, None)).chain(parked)
        };
        let fixes: Vec<Fix> = (0..5).flat_map(morning_fixes).collect();
        let found = events(depot(None), &fixes, 100 * HOUR);
        assert_eq!(found, ENTERED, "a fix every {interval} s, {metres} m off");
    }
}

#[test]
fn wrong_fix_between_two_sleeps_causes_no_crossing() {
    let fixes = [
        fix(0, 5.0, None),
        fix(15, 5.0, None),
        fix(8 * HOUR, 5_000.0, None),
        fix(8 * HOUR + 15, 5.0, None),
        fix(9 * HOUR, 5.0, None),
        fix(9 * HOUR + 15, 5.0, None),
    ];
    assert_eq!(events(depot(None), &fixes, 10 * HOUR), ENTERED);
}

#[test]
fn fix_beyond_the_reach_of_a_vehicle_needs_a_second_one() {
    // The last fix before a pause is 5 km off after 15 s. The pause is too long for a jump.
    let drive = |pause: i64, metres: f64| {
        let before = (0..4).map(|n| fix(n * 15, 5.0, None)).chain([fix(60, 5_000.0, None)]);
        let after = (0..4).map(move |n| fix(60 + pause + n * 15, metres, None));
        before.chain(after).collect::<Vec<_>>()
    };
    let left = [(Kind::Left, 60), (Kind::OffHours, 60)];
    for pause in [300, 600, 8 * HOUR] {
        let crossings = |metres| {
            let found = events(depot(None), &drive(pause, metres), 9 * HOUR);
            let is_contact = |kind| matches!(kind, Kind::Silent | Kind::Heard);
            found.into_iter().filter(|(kind, _)| !is_contact(*kind)).collect::<Vec<_>>()
        };
        assert_eq!(crossings(5.0), ENTERED, "back in the depot after {pause} s");
        assert_eq!(crossings(6_000.0), [ENTERED, left].concat(), "confirmed after {pause} s");
    }
}

#[test]
fn second_fix_confirms_a_crossing_at_the_first() {
    let fixes = [
        fix(0, 400.0, Some(10.0)),
        fix(15, 50.0, Some(9.0)),
        fix(30, -20.0, Some(8.0)),
        fix(45, -150.0, Some(9.0)),
        fix(60, -300.0, Some(9.0)),
    ];
    let found = events_of(&mut Watch::new(depot(None)), &fixes, 70);
    let expected =
        [(Kind::Entered, 15), (Kind::OffHours, 15), (Kind::Left, 45), (Kind::OffHours, 45)];
    assert_eq!(summary(&found), expected);
    let known: Vec<_> = found.iter().map(|event| (event.known_at - BEGAN) / 1_000).collect();
    assert_eq!(known, [30, 30, 60, 60], "known with the second fix");
    assert_eq!((found[0].lng, found[2].lng), (fixes[1].lng, fixes[3].lng));
}

#[test]
fn crossing_of_an_hourly_device_is_reported_after_two_minutes() {
    let fixes: Vec<Fix> =
        [5.0, 4_000.0, 5.0].into_iter().zip(0..).map(|(at, n)| fix(n * HOUR, at, None)).collect();
    let found = events_of(&mut Watch::new(depot(None)), &fixes, 3 * HOUR);
    let crossings = found.iter().filter(|event| matches!(event.kind, Kind::Entered | Kind::Left));
    let crossings: Vec<_> = crossings
        .map(|event| (event.kind, (event.ts - BEGAN) / 1_000, (event.known_at - BEGAN) / 1_000))
        .collect();
    let at = |kind, second| (kind, second, second + ALONE);
    assert_eq!(
        crossings,
        [at(Kind::Entered, 0), at(Kind::Left, HOUR), at(Kind::Entered, 2 * HOUR)]
    );
}

#[test]
fn arrival_at_the_last_fix_before_sleep_is_reported() {
    // The engine is turned off in the depot, some seconds after the last fix outside.
    for speed in [None, Some(0.0)] {
        let fixes = [fix(0, 500.0, Some(9.0)), fix(60, 5.0, speed)];
        let found = events(depot(None), &fixes, 12 * HOUR);
        assert_eq!(found, [(Kind::Entered, 60), (Kind::OffHours, 60)], "{speed:?}");
    }
}

#[test]
fn towed_car_leaves_even_at_speed_0() {
    let leaves = |steps: &[(i64, f64)], until: i64| {
        let parked = (0..4).map(|n| fix(n * 60, 5.0, Some(0.0)));
        let towed = steps.iter().map(|(second, at)| fix(*second, *at, Some(0.0)));
        let found = events(depot(None), &parked.chain(towed).collect::<Vec<_>>(), until);
        let left = found.into_iter().filter(|(kind, _)| *kind == Kind::Left);
        left.map(|(_, second)| second).collect::<Vec<_>>()
    };
    assert_eq!(leaves(&[(240, 300.0), (300, 900.0), (360, 1_500.0)], 361), [240]);
    // The tracker wakes every half an hour. Beyond 1 km, one fix is enough.
    assert_eq!(leaves(&[(2_000, 9_000.0)], 2_121), [2_000]);
    assert_eq!(leaves(&[(2_000, 900.0)], 3_000), Vec::<i64>::new());
    assert_eq!(leaves(&[(2_000, 900.0), (3_800, 900.0)], 3_801), [2_000]);
}

#[test]
fn buffered_fixes_are_judged_by_the_clock_of_the_device() {
    // The fixes are ten minutes apart and sent at once: each counts without a second fix.
    let steps = [5.0, 5.0, 4_000.0, 5.0, 5.0];
    let late: Vec<Fix> = (0..)
        .zip(steps)
        .map(|(n, at)| Fix { inserted_at: BEGAN + HOUR * 1_000, ..fix(n * 600, at, None) })
        .collect();
    let crossings = |fixes: &[Fix]| {
        let found = events(depot(None), fixes, HOUR + 1);
        let is_crossing = |(kind, _): &(Kind, i64)| matches!(kind, Kind::Entered | Kind::Left);
        found.into_iter().filter(is_crossing).collect::<Vec<_>>()
    };
    assert_eq!(crossings(&late), [(Kind::Entered, 0), (Kind::Left, 1_200), (Kind::Entered, 1_800)]);
    // The fixes are 15 s apart: the distant one is a spike.
    let late: Vec<Fix> = (0..)
        .zip(late)
        .map(|(n, fix)| Fix { ts: BEGAN + n * 15_000, lng: fix.lng.min(400.0 * METRE), ..fix })
        .collect();
    assert_eq!(crossings(&late), [(Kind::Entered, 0)]);
}

#[test]
fn inaccurate_fix_does_not_confirm_a_crossing() {
    let poor = |second, at| Fix { acc: Some(900.0), ..fix(second, at, None) };
    let fixes = [
        fix(0, 5.0, None),
        fix(15, 5.0, None),
        fix(30, 300.0, None),
        poor(45, 400.0),
        fix(60, 5.0, None),
    ];
    assert_eq!(events(depot(None), &fixes, 61), ENTERED);
}

#[test]
fn spike_changes_no_speed_state_of_the_fence() {
    let mut rules = depot(None);
    rules.areas[0].limits.speed_mps = Some(5.0);
    let places = [5.0, 20.0, 35.0, 300.0, 50.0, 65.0, 80.0, 200.0, 300.0];
    let fixes: Vec<Fix> = (0..).zip(places).map(|(n, at)| fix(n * 3, at, Some(6.0))).collect();
    let found = events(rules, &fixes, 27);
    let expected = [
        (Kind::Entered, 0),
        (Kind::OffHours, 0),
        (Kind::Fast, 0),
        (Kind::Left, 21),
        (Kind::OffHours, 21),
        (Kind::Slow, 21),
    ];
    assert_eq!(found, expected);
}

/// Returns the expected crossings: a second implementation of the rules for one fence with a
/// margin, without ticks. Each fix is given as its second, its distance beyond the border in metres
/// (negative: inside), and its speed.
fn crossings(fixes: &[(i64, f64, Option<f64>)], until: i64) -> Vec<(Kind, i64)> {
    let mut found = Vec::new();
    let mut is_inside = false;
    let stands = |index: usize| {
        let (_, _, speed) = fixes[index];
        speed == Some(0.0)
    };
    for (index, (second, beyond, _)) in fixes.iter().enumerate() {
        let has_crossed = |beyond: f64| if is_inside { beyond > 30.0 } else { beyond < 0.0 };
        let next = fixes.get(index + 1);
        let rests = stands(index) && (index == 0 || stands(index - 1));
        let is_alone = next.map_or(until, |(next_second, _, _)| *next_second) - second >= ALONE;
        let is_confirmed = next.is_some_and(|(_, next_beyond, _)| has_crossed(*next_beyond));
        if has_crossed(*beyond) && (is_confirmed || !rests && is_alone) {
            is_inside = !is_inside;
            found.push((if is_inside { Kind::Entered } else { Kind::Left }, *second));
        }
    }
    found
}

/// Returns fixes as `crossings` expects them, up to 80 m apart: no jump even within a second.
fn steps() -> impl Strategy<Value = Vec<(i64, f64, Option<f64>)>> {
    let step = (
        prop_oneof![6 => 1_i64..60, 1 => 100_i64..140, 1 => 300_i64..1_000],
        prop_oneof![3 => Just(-30.0), 1 => Just(20.0), 3 => Just(50.0)],
        prop_oneof![3 => Just(None), 3 => Just(Some(0.0)), 2 => Just(Some(9.0))],
    );
    prop::collection::vec(step, 1..40).prop_map(|steps| {
        let mut now = 0;
        let step = |(seconds, beyond, speed)| {
            now += seconds;
            (now, beyond, speed)
        };
        steps.into_iter().map(step).collect()
    })
}

proptest! {
    #![proptest_config(cases::cases(256))]

    #[test]
    fn crossings_match_their_definition(
        steps in steps(),
        wait in 1_i64..300,
        is_polled in any::<bool>(),
    ) {
        let until = steps.last().unwrap().0 + wait;
        let to_fix =
            |(second, beyond, speed): &(_, f64, _)| fix(*second, 100.0 + beyond, *speed);
        let fixes: Vec<Fix> = steps.iter().map(to_fix).collect();
        let mut watch = Watch::new(depot(None));
        let found = if is_polled {
            events_of(&mut watch, &fixes, until)
        } else {
            // No tick before the last one: the fixes alone must give the same events.
            let mut out = Vec::new();
            fixes.iter().for_each(|fix| watch.handle_fix(fix.clone(), &mut out));
            watch.tick(BEGAN + until * 1_000, &mut out);
            out
        };
        let is_crossing = |event: &&Event| matches!(event.kind, Kind::Entered | Kind::Left);
        let found: Vec<Event> = found.iter().filter(is_crossing).cloned().collect();
        prop_assert_eq!(summary(&found), crossings(&steps, until));
        // A crossing becomes known with the next fix, or after two minutes without one.
        for event in &found {
            let next = fixes.iter().find(|fix| fix.ts > event.ts).map_or(i64::MAX, |fix| fix.ts);
            let alone = event.ts + ALONE * 1_000;
            prop_assert!(event.known_at == next || event.known_at == alone && alone < next);
        }
    }

    #[test]
    fn restart_from_three_fixes_finds_the_same_crossings(
        steps in steps(),
        kill in any::<prop::sample::Index>(),
        back in 0_usize..6,
    ) {
        let until = steps.last().unwrap().0 + 300;
        let to_fix =
            |(second, beyond, speed): &(_, f64, _)| fix(*second, 100.0 + beyond, *speed);
        let fixes: Vec<Fix> = steps.iter().map(to_fix).collect();
        let ids = |events: &[Event]| {
            let is_crossing = |event: &&Event| matches!(event.kind, Kind::Entered | Kind::Left);
            let crossings = events.iter().filter(is_crossing);
            crossings.map(Event::id).collect::<BTreeSet<_>>()
        };
        let uninterrupted = ids(&events_of(&mut Watch::new(depot(None)), &fixes, until));
        // The first process ends after a fix; the next one replays from some fixes earlier.
        let kill = kill.index(fixes.len());
        let from = kill.saturating_sub(back);
        let written = events_of(&mut Watch::new(depot(None)), &fixes[..=kill], steps[kill].0);
        let replayed_after = if from == 0 { 0 } else { fixes[from - 1].inserted_at };
        let mut second = Watch::new(depot(None));
        fixes[from.saturating_sub(3)..from].iter().for_each(|fix| second.restore_fix(fix.clone()));
        let (before, known): (Vec<Event>, Vec<Event>) =
            written.iter().cloned().partition(|event| event.known_at <= replayed_after);
        before.iter().for_each(|event| second.restore_event(event));
        second.restore_states_before(known.iter());
        second.replay_known(known);
        let replayed = events_of(&mut second, &fixes[from..], until);
        let found = ids(&written).union(&ids(&replayed)).cloned().collect::<BTreeSet<_>>();
        prop_assert_eq!(found, uninterrupted);
    }
}
