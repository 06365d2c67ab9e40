//! Tests the guarantee of `watch`, and the definition of each kind of event. Devices repeat fixes,
//! the broker redelivers messages, clocks are wrong, and processes are killed.
#![expect(clippy::unwrap_used, reason = "a helper may panic, which fails its test")]

#[path = "../../../tests/pure/cases.rs"]
mod cases;

use std::collections::{BTreeMap, BTreeSet};

use milepost_events::fences::rules::FenceRules;
use milepost_events::watch::reader::{ENDLESS_MS, Inserted, Reader};
use milepost_events::watch::{Area, Event, Fix, Kind, Limits, Rules, Watch};
use proptest::prelude::*;
use proptest::sample::Index;

/// 2025-10-09, in Unix milliseconds.
const BEGAN: i64 = 1_760_000_000_000;
/// Milliseconds without a fix after which a driver is silent.
const SILENT_FOR_MS: i64 = 120_000;
/// Length of a degree on the equator, on a sphere with the mean radius of the earth.
const METRES_PER_DEGREE: f64 = 111_195.0;
/// Speed limit of the fleet.
const LIMIT_MPS: f64 = 25.0;
/// [`LIMIT_MPS`] in km/h: 90.
const LIMIT_KMH: f64 = LIMIT_MPS * 3.6;

/// Returns rules with four fences, squares of a tenth of a degree on the equator: `a` and `wide` at
/// one place, `b` beside them, and `c` after a gap.
fn rules() -> Rules {
    let square = |name: &str, west: f64| {
        let east = west + 0.1;
        let ring = vec![[west, 0.0], [east, 0.0], [east, 0.1], [west, 0.1], [west, 0.0]];
        Area::new(name.to_owned(), 0, i64::MAX, vec![vec![ring]])
    };
    Rules {
        areas: vec![
            square("a", 0.0).with_limits(limits(FenceRules {
                speed_limit_kmh: Some(LIMIT_KMH / 2.0),
                stay_max_s: Some(90),
                silent_for_s: Some(60),
                // BEGAN is at 08:53 UTC.
                hours: Some("09:00-10:00".to_owned()),
                ..FenceRules::default()
            })),
            square("b", 0.1).with_limits(limits(FenceRules {
                silent_for_s: Some(0),
                drivers: vec!["d1".to_owned(), "d2".to_owned()],
                ..FenceRules::default()
            })),
            square("wide", 0.0),
            square("c", 0.3),
        ],
        silent_for: Some(SILENT_FOR_MS),
        silent_gaps: 2.5,
        faster_than: Some(LIMIT_MPS),
        fence_margin: 0.0,
    }
}

fn limits(rules: FenceRules) -> Limits {
    Limits::new(rules).unwrap()
}

fn fix(driver: u8, ts: i64, lng: f64) -> Fix {
    Fix {
        driver_id: format!("d{driver}"),
        ts,
        seq: 0,
        lat: 0.05,
        lng,
        speed: None,
        acc: None,
        inserted_at: ts,
    }
}

/// Returns drives of three drivers. Each step has a driver, seconds since the step before, metres
/// to the east, speed and accuracy.
fn drives() -> impl Strategy<Value = Vec<Fix>> {
    drives_from(0.05, 1.0)
}

/// Returns drives with steps of up to 30 m across the border of `a` and `b`, and a few of 600 m.
fn border_drives() -> impl Strategy<Value = Vec<Fix>> {
    drives_from(0.1, 0.01)
}

/// Returns drives from the longitude `start_lng`. `scale`: factor for the metres of each step.
fn drives_from(start_lng: f64, scale: f64) -> impl Strategy<Value = Vec<Fix>> {
    let step = (
        0u8..3,
        prop_oneof![8 => 1i64..60, 1 => 100i64..400, 1 => Just(0)],
        prop_oneof![10 => -3_000.0..3_000.0, 1 => Just(60_000.0), 1 => Just(-60_000.0)],
        prop_oneof![Just(None), Just(Some(0.0)), (0.0..40.0).prop_map(Some)],
        prop_oneof![8 => Just(None), 1 => Just(Some(5.0)), 1 => Just(Some(900.0))],
    );
    prop::collection::vec(step, 1..60).prop_map(move |steps| {
        let mut at: BTreeMap<u8, (i64, f64)> = BTreeMap::new();
        let mut now = BEGAN;
        steps
            .into_iter()
            .map(|(driver, seconds, metres, speed, acc)| {
                now += seconds * 1_000 + 1;
                let (ts, lng) = at.get(&driver).copied().unwrap_or((BEGAN, start_lng));
                let leap: f64 = metres * scale / METRES_PER_DEGREE;
                // A fix far away is wrong: the next step begins where the driver was before it.
                let lng_now = (lng + leap).clamp(-0.5, 0.9);
                let ts = now.max(ts + 1);
                at.insert(driver, (ts, if leap.abs() > 0.1 { lng } else { lng_now }));
                Fix { speed, acc, inserted_at: now, ..fix(driver, ts, lng_now) }
            })
            .collect()
    })
}

/// Returns the events that a watch finds in these inserts. Ticks before each insert and at `until`.
fn events_of(watch: &mut Watch, inserts: &[Fix], until: i64) -> Vec<Event> {
    let mut out = Vec::new();
    for fix in inserts {
        watch.tick(fix.inserted_at - 1, &mut out);
        watch.handle_fix(fix.clone(), &mut out);
    }
    watch.tick(until, &mut out);
    sorted(out)
}

/// Sorts events: those of the same time may be found in any order.
fn sorted(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|event| (event.known_at, event.ts, event.id()));
    events
}

/// Returns a time four minutes after the last insert.
fn time_after(inserts: &[Fix]) -> i64 {
    inserts.last().unwrap().inserted_at + SILENT_FOR_MS * 2
}

/// Returns the answer of a replica at time `now`: at most `rows_max` of the rows that it has, and
/// its lag. A server reports the lag in whole seconds. This function rounds it up: if it were
/// rounded down, the reader could process rows that are less than a second apart in another order.
fn answer(inserts: &[(Fix, i64)], reader: &Reader, now: i64, rows_max: usize) -> Inserted {
    let missing =
        inserts.iter().filter(|(fix, visible_at)| fix.inserted_at <= now && *visible_at > now);
    let oldest = missing.map(|(fix, _)| fix.inserted_at).min().unwrap_or(now);
    let mut fixes = readable(inserts, reader, now);
    let is_cut = fixes.len() > rows_max;
    fixes.truncate(rows_max);
    Inserted { fixes, is_cut, now, lag_ms: (now - oldest + 999) / 1_000 * 1_000 }
}

/// Largest time by which an insert may be ahead of the server's clock. The query of `milepost
/// events` leaves out rows with later times.
const AHEAD_MS_MAX: i64 = 30_000;

/// Returns the visible rows of the spans that the reader asks for.
fn readable(inserts: &[(Fix, i64)], reader: &Reader, now: i64) -> Vec<Fix> {
    let is_wanted = |fix: &Fix| {
        let is_in = |(after, until): (i64, i64)| {
            let until = if until > ENDLESS_MS { now + AHEAD_MS_MAX } else { until };
            (after + 1..=until).contains(&fix.inserted_at)
        };
        reader.wanted().any(is_in)
    };
    let visible = inserts.iter().filter(|(fix, visible_at)| *visible_at <= now && is_wanted(fix));
    visible.map(|(fix, _)| fix.clone()).collect()
}

/// Returns the events that polls of a replica find.
fn events_of_polls(
    inserts: &[(Fix, i64)],
    pauses: &[i64],
    rows_max: usize,
    until: i64,
) -> Vec<Event> {
    let (mut watch, mut reader, mut out) =
        (Watch::new(rules()), Reader::new(BEGAN - 1), Vec::new());
    let (mut now, mut pauses) = (BEGAN, pauses.iter().cycle());
    while now < until + 5_000 {
        now += pauses.next().unwrap();
        reader.begin(now);
        while reader.handle_answer(answer(inserts, &reader, now, rows_max), &mut watch, &mut out) {}
        reader.end(&mut watch, &mut out);
    }
    out.retain(|event| event.known_at <= until);
    sorted(out)
}

/// An answer has a limit of fixes, and an insert may have more of them, all with one insert time.
#[test]
fn insert_with_more_fixes_than_an_answer_hides_no_later_insert() {
    let crowd = (0..5).map(|n| fix(1, BEGAN + n, 0.8));
    let crowd = crowd.map(|fix| Fix { inserted_at: BEGAN + 2_000, ..fix });
    let later = [2_100, 2_200].map(|ms| fix(2, BEGAN + ms, 0.05));
    let inserts: Vec<_> = crowd.chain(later).map(|fix| (fix, BEGAN + 2_500)).collect();
    let events = events_of_polls(&inserts, &[10_000], 3, BEGAN + 60_000);
    assert!(events.iter().any(|event| event.id() == format!("d2/entered/{}/0/a", BEGAN + 2_100)));
}

fn ids(events: &[Event]) -> BTreeSet<String> {
    events.iter().map(Event::id).collect()
}

/// Returns the drive, with some earlier fixes inserted again right after later ones.
fn with_echoes(drive: &[Fix], echoes: &[(Index, Index)]) -> Vec<Fix> {
    let mut after: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (first, second) in echoes {
        let (first, second) = (first.index(drive.len()), second.index(drive.len()));
        after.entry(first.max(second)).or_default().push(first.min(second));
    }
    let mut inserts = Vec::new();
    for (index, fix) in drive.iter().enumerate() {
        inserts.push(fix.clone());
        for echo in after.get(&index).into_iter().flatten() {
            inserts.push(Fix { inserted_at: fix.inserted_at, ..drive[*echo].clone() });
        }
    }
    inserts
}

/// Returns a number for the state that an event changes.
fn state_of(event: &Event) -> u8 {
    match event.kind {
        Kind::Entered | Kind::Overstayed | Kind::Left => 0,
        Kind::OffHours => 4,
        Kind::Silent | Kind::Heard => 1,
        Kind::Fast | Kind::Slow => 2,
        Kind::Jump => 3,
    }
}

proptest! {
    #![proptest_config(cases::cases(256))]

    #[test]
    fn redelivered_fix_causes_no_event(
        drive in drives(),
        echoes in prop::collection::vec(any::<(Index, Index)>(), 0..30),
    ) {
        let until = time_after(&drive);
        let once = events_of(&mut Watch::new(rules()), &drive, until);
        let again = events_of(&mut Watch::new(rules()), &with_echoes(&drive, &echoes), until);
        prop_assert_eq!(once, again);
    }

    #[test]
    fn lag_and_row_order_of_a_replica_change_no_event(
        drive in drives(),
        late in prop::collection::vec(prop_oneof![3 => Just(0), 1 => 0i64..200_000], 60),
        pauses in prop::collection::vec(300i64..3_000, 1..20),
        rows_max in 2usize..8,
    ) {
        let drive = &drive[..drive.len().min(25)];
        let until = time_after(drive) + 200_000;
        let with_delay = |(fix, late): (&Fix, i64)| (fix.clone(), fix.inserted_at + 500 + late);
        let inserts: Vec<(Fix, i64)> = drive.iter().zip(late).map(with_delay).collect();
        let is_contact = |event: &Event| matches!(event.kind, Kind::Silent | Kind::Heard);
        let expected = events_of(&mut Watch::new(rules()), drive, until);
        let (contacts, others): (Vec<_>, Vec<_>) = expected.into_iter().partition(is_contact);
        let found = events_of_polls(&inserts, &pauses, rows_max, until);
        let (found_contacts, found): (Vec<_>, Vec<_>) = found.into_iter().partition(is_contact);
        prop_assert_eq!(others, found);
        // A poll is some seconds late, so it may miss a silence that ends within these seconds. It
        // must not find a silence that is not expected.
        let is_subset = ids(&found_contacts).is_subset(&ids(&contacts));
        prop_assert!(is_subset, "{:?} {:?}", contacts, found_contacts);
    }

    #[test]
    fn redelivery_does_not_end_a_silence(drive in drives(), index in any::<Index>()) {
        let mut watch = Watch::new(rules());
        let until = time_after(&drive);
        let _ = events_of(&mut watch, &drive, until);
        let mut out = Vec::new();
        let repeated = drive[index.index(drive.len())].clone();
        watch.handle_fix(Fix { inserted_at: until + 1, ..repeated }, &mut out);
        prop_assert_eq!(out, vec![]);
    }

    #[test]
    fn late_fixes_cause_no_event(
        drive in drives(),
        late in prop::collection::vec((0u8..3, 0i64..100_000, -0.5..0.9), 0..20),
    ) {
        let until = time_after(&drive);
        let once = events_of(&mut Watch::new(rules()), &drive, until);
        let mut watch = Watch::new(rules());
        let mut out = Vec::new();
        let mut seen = BTreeSet::new();
        let mut late = late.into_iter();
        for current in &drive {
            watch.tick(current.inserted_at - 1, &mut out);
            watch.handle_fix(current.clone(), &mut out);
            seen.insert(current.driver_id.clone());
            // A fix older than all others of its driver, inserted now.
            if let Some((driver, before, lng)) = late.next()
                && seen.contains(&format!("d{driver}"))
            {
                let older = fix(driver, BEGAN - before, lng);
                watch.handle_fix(Fix { inserted_at: current.inserted_at, ..older }, &mut out);
            }
        }
        watch.tick(until, &mut out);
        prop_assert_eq!(once, sorted(out));
    }

    #[test]
    fn event_ids_are_unique_and_states_alternate(drive in drives()) {
        let events = events_of(&mut Watch::new(rules()), &drive, time_after(&drive));
        prop_assert_eq!(ids(&events).len(), events.len(), "{:?}", events);
        let mut states: BTreeMap<(String, &str, String), Kind> = BTreeMap::new();
        for event in &events {
            let (state, begins) = match event.kind {
                Kind::Entered => ("fence", true),
                Kind::Left | Kind::Overstayed => ("fence", false),
                Kind::Silent => ("contact", true),
                Kind::Heard => ("contact", false),
                Kind::Fast => ("speed", true),
                Kind::Slow => ("speed", false),
                Kind::Jump | Kind::OffHours => continue,
            };
            let key = (event.driver_id.clone(), state, event.fence.clone());
            let before = states.insert(key, event.kind);
            prop_assert_ne!(before, Some(event.kind), "{:?}", events);
            let has_begun = begins || before.is_some();
            prop_assert!(has_begun, "a state ended that had not begun: {:?}", events);
        }
    }

    #[test]
    fn restarted_process_finds_the_same_events(
        drive in prop_oneof![drives(), border_drives()],
        fence_margin in prop_oneof![Just(0.0), Just(30.0)],
        kill in any::<Index>(),
        back in 0usize..10,
    ) {
        let rules = || Rules { fence_margin, ..rules() };
        let until = time_after(&drive);
        let uninterrupted = events_of(&mut Watch::new(rules()), &drive, until);
        // The first process writes all events up to `kill`. The next one replays from `from`, some
        // fixes earlier.
        let kill = kill.index(drive.len());
        let from = kill.saturating_sub(back);
        let until_then = drive[kill].inserted_at;
        let mut first = Watch::new(rules());
        let written = events_of(&mut first, &drive[..=kill], until_then);
        let replayed_after = if from == 0 { 0 } else { drive[from - 1].inserted_at };
        let mut second = Watch::new(rules());
        for fix in &drive[..from] {
            second.restore_fix(fix.clone());
        }
        // The table of states has only the newest event of each state. The replayed events imply
        // the states before them.
        let newest = |event: &&Event| {
            let key = |event: &Event| {
                (event.driver_id.clone(), state_of(event), event.fence.clone())
            };
            let same = |other: &&Event| key(other) == key(event);
            written.iter().rfind(same).is_some_and(|other| other.id() == event.id())
        };
        let is_replayed = |event: &&Event| event.known_at > replayed_after;
        for event in written.iter().filter(newest).filter(|event| !is_replayed(event)) {
            second.restore_event(event);
        }
        second.restore_states_before(written.iter().filter(is_replayed));
        let replayed = events_of(&mut second, &drive[from..], until);
        let found: BTreeSet<String> = ids(&written).union(&ids(&replayed)).cloned().collect();
        prop_assert_eq!(found, ids(&uninterrupted));
    }

    #[test]
    fn every_driver_ends_in_the_fences_around_its_last_good_fix(drive in drives()) {
        let is_accurate = |fix: &Fix| fix.acc.is_none_or(|acc| acc <= 200.0);
        let mut drive: Vec<Fix> = drive.into_iter().filter(is_accurate).collect();
        prop_assume!(!drive.is_empty());
        // Three much later fixes at one place decide every crossing that was still undecided.
        let later = time_after(&drive) + 4_000_000;
        for driver in 0..3 {
            drive.extend((0..3).map(|n| fix(driver, later + n * 10_000, 0.15)));
        }
        let events = events_of(&mut Watch::new(rules()), &drive, later + 30_000);
        let mut inside = BTreeSet::new();
        for event in &events {
            let key = (event.driver_id.clone(), event.fence.clone());
            match event.kind {
                Kind::Entered => drop(inside.insert(key)),
                Kind::Left => drop(inside.remove(&key)),
                Kind::Overstayed
                | Kind::OffHours
                | Kind::Silent
                | Kind::Heard
                | Kind::Fast
                | Kind::Slow
                | Kind::Jump => {}
            }
        }
        let expected = ["d1", "d2"].map(|driver| (driver.to_owned(), "b".to_owned()));
        prop_assert_eq!(inside, BTreeSet::from(expected));
    }
}

#[test]
fn margin_counts_across_the_antimeridian() {
    // The fence ends at 180 degrees; places beyond it are at -180 degrees and more.
    let ring = vec![[179.9, 0.0], [180.0, 0.0], [180.0, 0.1], [179.9, 0.1], [179.9, 0.0]];
    let area = Area::new("date line".to_owned(), 0, i64::MAX, vec![vec![ring]]);
    let rules = Rules { areas: vec![area], fence_margin: 30.0, ..Rules::default() };
    let drive: Vec<Fix> = [
        (0, 179.998),
        (30, 179.999),
        (60, -180.0 + 25.0 / METRES_PER_DEGREE),
        (90, -180.0 + 25.0 / METRES_PER_DEGREE),
        (120, -179.999),
        (150, -179.998),
    ]
    .into_iter()
    .map(|(second, lng)| fix(1, BEGAN + second * 1_000, lng))
    .collect();
    let events = events_of(&mut Watch::new(rules), &drive, time_after(&drive));
    assert_eq!(summary(&events), [(Kind::Entered, "date line", 0), (Kind::Left, "date line", 120)]);
}

/// Returns kind, fence and second of each event.
fn summary(events: &[Event]) -> Vec<(Kind, &str, i64)> {
    events
        .iter()
        .map(|event| (event.kind, event.fence.as_str(), (event.ts - BEGAN) / 1_000))
        .collect()
}

#[test]
fn drive_through_a_fence_enters_and_leaves_once() {
    let drive: Vec<Fix> =
        [(0, 0.25), (60, 0.29), (120, 0.31), (180, 0.35), (240, 0.39), (300, 0.41), (360, 0.43)]
            .into_iter()
            .map(|(second, lng)| fix(1, BEGAN + second * 1_000, lng))
            .collect();
    let events = events_of(
        &mut Watch::new(Rules { silent_for: None, ..rules() }),
        &drive,
        time_after(&drive),
    );
    assert_eq!(summary(&events), [(Kind::Entered, "c", 120), (Kind::Left, "c", 300)]);
}

#[test]
fn speed_around_the_limit_is_fast_and_slow_once() {
    let speeds = [20.0, 25.1, 24.9, 25.2, 24.8, 25.1, 24.9, 25.3, 10.0, 24.9];
    let drive: Vec<Fix> = (0i64..)
        .zip(speeds)
        .map(|(n, speed)| Fix { speed: Some(speed), ..fix(1, BEGAN + n * 10_000, 0.25) })
        .collect();
    let events = events_of(
        &mut Watch::new(Rules { silent_for: None, ..rules() }),
        &drive,
        time_after(&drive),
    );
    assert_eq!(summary(&events), [(Kind::Fast, "", 10), (Kind::Slow, "", 80)]);
}

/// Returns the events of a drive with one fence, from 0.3 to 0.4 degrees, with only these rules.
fn events_by(rules: FenceRules, drive: &[Fix], silent_for: Option<i64>) -> Vec<Event> {
    let mut areas = crate::rules().areas;
    let area = areas.remove(3).with_limits(limits(rules));
    let rules = Rules {
        areas: vec![area],
        silent_for,
        silent_gaps: 0.0,
        faster_than: None,
        fence_margin: 30.0,
    };
    events_of(&mut Watch::new(rules), drive, time_after(drive))
}

/// Returns a drive of one driver. Each step has seconds, degrees to the east, and speed.
fn drive(steps: &[(i64, f64, Option<f64>)]) -> Vec<Fix> {
    let fix = |(second, lng, speed): &(i64, f64, Option<f64>)| Fix {
        speed: *speed,
        ..fix(1, BEGAN + second * 1_000, *lng)
    };
    steps.iter().map(fix).collect()
}

/// Many devices send whole km/h, and `positions` rounds each speed to hundredths of m/s.
#[test]
fn speed_at_the_limit_is_not_fast() {
    for limit_kmh in [10.0, 20.0, 30.0, 50.0, 60.0, 100.0, 110.0] {
        let is_fast = |kmh: f64, faster_than: Option<f64>| {
            let speed = Some((kmh / 3.6 * 100.0).round() / 100.0);
            let drive = drive(&[(0, 0.35, speed), (10, 0.35, speed), (20, 0.35, speed)]);
            let fence = FenceRules { speed_limit_kmh: Some(limit_kmh), ..FenceRules::default() };
            let area = crate::rules().areas.remove(3).with_limits(limits(fence));
            let areas = if faster_than.is_some() { vec![] } else { vec![area] };
            let mut watch = Watch::new(Rules { areas, faster_than, ..Rules::default() });
            let events = events_of(&mut watch, &drive, time_after(&drive));
            events.iter().any(|event| event.kind == Kind::Fast)
        };
        for faster_than in [None, Some(limit_kmh / 3.6)] {
            assert!(!is_fast(limit_kmh, faster_than), "{limit_kmh} km/h, {faster_than:?}");
            assert!(is_fast(limit_kmh + 1.0, faster_than), "{limit_kmh} km/h, {faster_than:?}");
        }
    }
}

#[test]
fn limit_of_a_fence_applies_only_inside_it() {
    let rules = FenceRules { speed_limit_kmh: Some(36.0), ..FenceRules::default() };
    let steps = [
        (0, 0.25, Some(12.0)),
        (60, 0.29, Some(12.0)),
        // Not fast, because only one fix inside is above the limit.
        (120, 0.31, Some(12.0)),
        (130, 0.311, Some(9.0)),
        (140, 0.312, Some(12.0)),
        (150, 0.313, Some(12.0)),
        (160, 0.314, Some(9.8)),
        (170, 0.315, Some(9.4)),
        (180, 0.316, Some(12.0)),
        (190, 0.317, Some(12.0)),
        (300, 0.41, Some(12.0)),
        (310, 0.411, Some(12.0)),
    ];
    let found = events_by(rules, &drive(&steps), None);
    assert_eq!(
        summary(&found),
        [
            (Kind::Entered, "c", 120),
            (Kind::Fast, "c", 140),
            (Kind::Slow, "c", 170),
            (Kind::Fast, "c", 180),
            (Kind::Left, "c", 300),
            (Kind::Slow, "c", 300),
        ]
    );
}

#[test]
fn long_stay_of_a_sleeping_device_is_reported_once() {
    let rules = FenceRules { stay_max_s: Some(600), ..FenceRules::default() };
    let steps = [
        (0, 0.29, None),
        (60, 0.31, None),
        (120, 0.32, None),
        (1_800, 0.38, None),
        (1_900, 0.41, None),
    ];
    let found = events_by(rules.clone(), &drive(&steps), None);
    let expected =
        [(Kind::Entered, "c", 60), (Kind::Overstayed, "c", 60), (Kind::Left, "c", 1_900)];
    assert_eq!(summary(&found), expected);
    assert_eq!(
        found[1].known_at,
        BEGAN + 720_000,
        "the event is known ten minutes after the second fix inside"
    );
    // A device that was offline sends all fixes of the stay late, at one time.
    let late: Vec<Fix> = drive(&steps)
        .into_iter()
        .map(|fix| Fix { inserted_at: BEGAN + 2_000_000, ..fix })
        .collect();
    assert_eq!(summary(&events_by(rules.clone(), &late, None)), expected);
    let steps = [(0, 0.29, None), (60, 0.31, None), (640, 0.395, None), (650, 0.401, None)];
    assert_eq!(
        summary(&events_by(rules, &drive(&steps), None)),
        [(Kind::Entered, "c", 60), (Kind::Left, "c", 650)]
    );
}

#[test]
fn crossing_a_closed_fence_adds_an_off_hours_event() {
    // BEGAN is a Thursday, 08:53:20 UTC.
    let rules = FenceRules { hours: Some("Mo-Fr 09:00-10:00".to_owned()), ..FenceRules::default() };
    let steps = [
        (0, 0.25, None),
        (300, 0.31, None),
        (480, 0.42, None),
        (700, 0.31, None),
        (4_200, 0.42, None),
    ];
    assert_eq!(
        summary(&events_by(rules, &drive(&steps), None)),
        [
            (Kind::Entered, "c", 300),
            (Kind::OffHours, "c", 300),
            (Kind::Left, "c", 480),
            (Kind::Entered, "c", 700),
            (Kind::Left, "c", 4_200),
            (Kind::OffHours, "c", 4_200),
        ]
    );
}

#[test]
fn fence_for_one_driver_ignores_others() {
    let rules = FenceRules { drivers: vec!["d2".to_owned()], ..FenceRules::default() };
    let steps = [(0, 0.29, None), (60, 0.31, None), (400, 0.42, None)];
    assert_eq!(summary(&events_by(rules.clone(), &drive(&steps), None)), []);
    let other: Vec<Fix> =
        drive(&steps).into_iter().map(|fix| Fix { driver_id: "d2".to_owned(), ..fix }).collect();
    assert_eq!(summary(&events_by(rules, &other, None)).len(), 2);
}

#[test]
fn fence_decides_when_a_driver_inside_is_silent() {
    let steps = [(0, 0.31, None), (600, 0.42, None), (1_200, 0.42, None)];
    let silences = |rules: FenceRules| {
        let found = events_by(rules, &drive(&steps), Some(SILENT_FOR_MS));
        let silent = found.iter().filter(|event| event.kind == Kind::Silent);
        silent.map(|event| (event.known_at - BEGAN) / 1_000).collect::<Vec<_>>()
    };
    let rules = |silent_for_s| FenceRules { silent_for_s, ..FenceRules::default() };
    // Outside, the fleet's rule applies.
    assert_eq!(silences(rules(None)), [120, 720, 1_320]);
    assert_eq!(silences(rules(Some(300))), [300, 720, 1_320]);
    assert_eq!(silences(rules(Some(900))), [720, 1_320]);
    assert_eq!(silences(rules(Some(0))), [720, 1_320]);
}

#[test]
fn device_at_rest_on_the_border_enters_a_fence_once() {
    // The west border of c is at 0.3. For 47 minutes the positions are up to 25 m off, on both
    // sides.
    let drive: Vec<Fix> = (0..188)
        .map(|n| {
            let metres = 25.0 * (f64::from(n) * 0.9).sin();
            fix(1, BEGAN + i64::from(n) * 15_000, 0.3 + metres / METRES_PER_DEGREE)
        })
        .collect();
    let events_with_margin = |fence_margin| {
        let rules = Rules { silent_for: None, fence_margin, ..rules() };
        events_of(&mut Watch::new(rules), &drive, time_after(&drive))
    };
    let kinds = |kind| events_with_margin(30.0).iter().filter(|event| event.kind == kind).count();
    assert_eq!((kinds(Kind::Entered), kinds(Kind::Left)), (1, 0));
    assert!(events_with_margin(0.0).len() > 40, "the drive must cross the border often");
}

#[test]
fn one_fix_above_the_limit_is_not_fast() {
    let speeds = [20.0, 60.0, 20.0, 20.0, 26.0, 24.0, 23.0, 10.0];
    let drive: Vec<Fix> = (0i64..)
        .zip(speeds)
        .map(|(n, speed)| Fix { speed: Some(speed), ..fix(1, BEGAN + n * 10_000, 0.25) })
        .collect();
    let events = events_of(
        &mut Watch::new(Rules { silent_for: None, ..rules() }),
        &drive,
        time_after(&drive),
    );
    // 24 m/s is above 95 % of the limit, 23 m/s is not.
    assert_eq!(summary(&events), [(Kind::Fast, "", 40), (Kind::Slow, "", 60)]);
}

#[test]
fn limit_that_is_switched_off_ends_at_the_next_fix() {
    let fast = |second: i64| Fix { speed: Some(30.0), ..fix(1, BEGAN + second * 1_000, 0.25) };
    let mut out = Vec::new();
    let mut watch = Watch::new(Rules { silent_for: None, ..rules() });
    [0, 10].into_iter().for_each(|second| watch.handle_fix(fast(second), &mut out));
    // The next process has no `events.faster_than`.
    let mut restarted = Watch::new(Rules { faster_than: None, silent_for: None, ..rules() });
    restarted.restore_fix(fast(10));
    out.iter().for_each(|event| restarted.restore_event(event));
    [20, 30].into_iter().for_each(|second| restarted.handle_fix(fast(second), &mut out));
    assert_eq!(summary(&out), [(Kind::Fast, "", 0), (Kind::Slow, "", 20)]);
}

#[test]
fn jump_is_one_event_and_enters_no_fence() {
    let drive: Vec<Fix> = [(0, 0.25), (10, 0.35), (20, 0.25), (30, 0.25)]
        .into_iter()
        .map(|(second, lng)| fix(1, BEGAN + second * 1_000, lng))
        .collect();
    let events = events_of(
        &mut Watch::new(Rules { silent_for: None, ..rules() }),
        &drive,
        time_after(&drive),
    );
    assert_eq!(summary(&events), [(Kind::Jump, "", 10)]);
}

#[test]
fn silence_and_its_end_are_one_event_each() {
    let mut watch = Watch::new(rules());
    let mut out = Vec::new();
    watch.handle_fix(fix(1, BEGAN, 0.25), &mut out);
    for second in 1..400 {
        watch.tick(BEGAN + second * 1_000, &mut out);
    }
    watch.handle_fix(fix(1, BEGAN + 400_000, 0.25), &mut out);
    watch.handle_fix(fix(1, BEGAN + 401_000, 0.25), &mut out);
    assert_eq!(summary(&out), [(Kind::Silent, "", 0), (Kind::Heard, "", 400)]);
    assert_eq!(out[0].known_at, BEGAN + SILENT_FOR_MS);
}

#[test]
fn device_that_reports_rarely_is_silent_by_its_own_rhythm() {
    // `fixes`: the minutes of each fix's insert and `ts`. Returns the minutes at which the driver
    // falls silent.
    let silences = |fixes: &[(i64, i64)]| {
        let drive: Vec<Fix> = fixes
            .iter()
            .zip(0..)
            .map(|((inserted, ts), seq)| Fix {
                inserted_at: BEGAN + inserted * 60_000,
                seq,
                ..fix(1, BEGAN + ts * 60_000, 0.25)
            })
            .collect();
        let rules = Rules { areas: vec![], silent_for: Some(600_000), ..rules() };
        let found = events_of(&mut Watch::new(rules), &drive, BEGAN + 86_400_000);
        let silent = found.iter().filter(|event| event.kind == Kind::Silent);
        silent.map(|event| (event.known_at - BEGAN) / 60_000).collect::<Vec<_>>()
    };
    let real_time = |minutes: &[i64]| minutes.iter().map(|at| (*at, *at)).collect::<Vec<_>>();
    // Reports every hour, with one report missing: two silences before the rhythm is known, and one
    // at the end.
    assert_eq!(silences(&real_time(&[0, 60, 120, 180, 240, 360, 420])), [10, 70, 570]);
    // Reports every hour while parked, and every minute while driving: the last silence is that of
    // a drive.
    assert_eq!(silences(&real_time(&[0, 60, 120, 180, 181, 182, 183])), [10, 70, 193]);
    // One long pause changes nothing.
    assert_eq!(silences(&real_time(&[0, 1, 2, 90, 91, 92])), [12, 102]);
    // Reports every hour with two fixes, a minute apart or in one insert. The last silence is that
    // of the device.
    for (minutes, expected) in [(1, [11, 71, 328]), (0, [10, 70, 330])] {
        let pairs: Vec<_> = (0..4).flat_map(|n| [n * 60, n * 60 + minutes]).collect();
        let fixes: Vec<_> = real_time(&pairs);
        assert_eq!(silences(&fixes), expected, "{minutes} minutes apart");
    }
    // A device that takes a fix every ten minutes and sends them every hour.
    let buffered: Vec<(i64, i64)> = (0..36).map(|n| (n / 6 * 60 + 60, n * 10)).collect();
    assert_eq!(silences(&buffered), [70, 130, 510]);
}

#[test]
fn silent_event_has_the_last_fix_even_a_jump_or_a_poor_one() {
    for (metres, acc) in [(50_000.0, None), (10.0, Some(900.0)), (10.0, None)] {
        let mut watch = Watch::new(rules());
        let mut out = Vec::new();
        watch.handle_fix(fix(1, BEGAN, 0.25), &mut out);
        let last = Fix { acc, ..fix(1, BEGAN + 1_000, 0.25 + metres / METRES_PER_DEGREE) };
        watch.handle_fix(last.clone(), &mut out);
        out.clear();
        watch.tick(BEGAN + 1_000 + SILENT_FOR_MS, &mut out);
        let silent = out.iter().find(|event| event.kind == Kind::Silent).unwrap();
        assert_eq!((silent.ts, silent.lng), (last.ts, last.lng), "{metres} {acc:?}: {silent:?}");
    }
}

/// Polls once, with all rows visible.
fn poll(reader: &mut Reader, watch: &mut Watch, fixes: &[Fix], now: i64) -> Vec<Event> {
    let inserts: Vec<_> = fixes.iter().map(|fix| (fix.clone(), fix.inserted_at)).collect();
    let mut out = Vec::new();
    reader.begin(now);
    while reader.handle_answer(answer(&inserts, reader, now, 100), watch, &mut out) {}
    reader.end(watch, &mut out);
    out
}

#[test]
fn no_driver_is_silent_until_the_backlog_of_an_outage_is_inserted() {
    let (mut watch, mut reader) = (Watch::new(rules()), Reader::new(BEGAN - 1));
    let fixes = [fix(1, BEGAN, 0.25), fix(2, BEGAN, 0.25)];
    assert_eq!(poll(&mut reader, &mut watch, &fixes, BEGAN + 1_000), []);
    reader.lost_clickhouse();
    let back = BEGAN + 2 * SILENT_FOR_MS;
    assert_eq!(poll(&mut reader, &mut watch, &fixes, back), []);
    // The backlog has a fix of the first driver, and none of the second.
    let fixes = [
        fixes[0].clone(),
        fixes[1].clone(),
        Fix { inserted_at: back + 10_000, ..fix(1, BEGAN + 5_000, 0.25) },
    ];
    assert_eq!(poll(&mut reader, &mut watch, &fixes, back + 59_000), []);
    let silent = poll(&mut reader, &mut watch, &fixes, back + 60_000);
    assert_eq!(ids(&silent), BTreeSet::from([format!("d2/silent/{BEGAN}/0")]));
}

#[test]
fn outage_does_not_lengthen_a_stay() {
    let rules = FenceRules { stay_max_s: Some(2_700), ..FenceRules::default() };
    let stays = |left: i64| {
        let (mut watch, mut reader) =
            (Watch::new(fence_until(100_000, rules.clone(), None)), Reader::new(BEGAN - 1));
        let mut fixes = drive(&[(0, 0.35, None), (10, 0.35, None)]);
        let mut found = poll(&mut reader, &mut watch, &fixes, BEGAN + 20_000);
        reader.lost_clickhouse();
        // After an hour, ClickHouse gets the fixes that were sent during the outage.
        let back = BEGAN + 3_600_000;
        let backlog = [(left - 60, 0.38), (left, 0.41), (left + 10, 0.41)];
        let backlog = backlog.map(|(second, lng)| fix(1, BEGAN + second * 1_000, lng));
        fixes.extend(backlog.map(|fix| Fix { inserted_at: back + 5_000, ..fix }));
        found.extend(poll(&mut reader, &mut watch, &fixes, back + 10_000));
        found.into_iter().map(|event| event.kind).collect::<Vec<_>>()
    };
    assert_eq!(stays(600), [Kind::Entered, Kind::Left]);
    assert_eq!(stays(2_750), [Kind::Entered, Kind::Overstayed, Kind::Left]);
}

/// Polls a single server once. The rows of an insert become visible some time after its insert
/// time.
fn poll_late(
    reader: &mut Reader,
    watch: &mut Watch,
    inserts: &[(Fix, i64)],
    (at, now): (i64, i64),
) -> Vec<Event> {
    let mut out = Vec::new();
    reader.begin(at);
    loop {
        let mut fixes = readable(inserts, reader, now);
        fixes.sort_by_key(|fix| (fix.inserted_at, fix.ts));
        let answer = Inserted { fixes, is_cut: false, now, lag_ms: 0 };
        if !reader.handle_answer(answer, watch, &mut out) {
            break;
        }
    }
    reader.end(watch, &mut out);
    out
}

#[test]
fn rows_visible_half_a_minute_late_are_found() {
    for pause in [1_000, 5_000, 9_000, 40_000] {
        for begin in (0..40_000).step_by(500) {
            let (mut watch, mut reader) = (Watch::new(rules()), Reader::new(BEGAN));
            let slow = |ts| Fix { inserted_at: BEGAN + begin, ..fix(1, ts, 0.35) };
            let inserts = [slow(BEGAN), slow(BEGAN + 1)].map(|fix| (fix, BEGAN + begin + 29_500));
            let polls = (1..100).map(|n| n * pause);
            let found: Vec<_> = polls
                .flat_map(|at| poll_late(&mut reader, &mut watch, &inserts, (at, BEGAN + at)))
                .collect();
            let entered = found.iter().filter(|event| event.kind == Kind::Entered);
            assert_eq!(entered.count(), 1, "poll every {pause} ms, insert at {begin} ms");
        }
    }
}

#[test]
fn polls_read_few_rows_except_the_first_one_after_a_gap() {
    let (mut watch, mut reader) = (Watch::new(rules()), Reader::new(BEGAN));
    let inserts: Vec<_> = (1..600)
        .map(|second| fix(1, BEGAN + second * 1_000, 0.25))
        .map(|fix| (fix.clone(), fix.inserted_at))
        .collect();
    let mut read = Vec::new();
    // No poll between the 200th and the 500th second.
    for second in (1..200).chain(500..600) {
        let now = BEGAN + second * 1_000;
        reader.begin(second * 1_000);
        read.push(readable(&inserts, &reader, now).len());
        while reader.handle_answer(
            answer(&inserts, &reader, now, usize::MAX),
            &mut watch,
            &mut Vec::new(),
        ) {}
        reader.end(&mut watch, &mut Vec::new());
    }
    let gap = read.remove(199);
    assert!((300..=340).contains(&gap), "{gap}");
    assert!(read.iter().all(|rows| *rows <= 5), "{read:?}");
}

#[test]
fn clock_step_neither_silences_nor_hides_a_driver() {
    const HOUR: i64 = 3_600_000;
    let (mut watch, mut reader) = (Watch::new(rules()), Reader::new(BEGAN - 1));
    // The driver sends every five seconds. The server's clock is an hour ahead in the second
    // minute.
    let inserted = |second: i64| BEGAN + second * 1_000 + if second / 60 == 1 { HOUR } else { 0 };
    let mut inserts = Vec::new();
    let mut found = Vec::new();
    for second in 0..180 {
        let now = inserted(second);
        if second % 5 == 0 {
            let place = if second < 150 { 0.35 } else { 0.25 };
            inserts.push((
                Fix {
                    inserted_at: now,
                    ..fix(1, BEGAN + second * 1_000, place + 0.0001 * second as f64)
                },
                now,
            ));
        }
        let visible: Vec<_> = inserts.iter().map(|(fix, _)| (fix.clone(), i64::MIN)).collect();
        found.extend(poll_late(&mut reader, &mut watch, &visible, (second * 1_000, now)));
    }
    let kinds: Vec<_> = found.iter().map(|event| (event.kind, event.fence.as_str())).collect();
    assert_eq!(kinds, [(Kind::Entered, "c"), (Kind::Left, "c")]);
}

/// The driver sends a fix a second and passes through fence "c". The server's clock is set back
/// before, within or after the passage, during a pause of twenty seconds between two polls. Steps
/// of less than twenty seconds have no pause, and each step is longer than the delay of the rows.
/// Otherwise, one poll would find unread inserts of both clocks with overlapping times, and read
/// their fixes in the wrong order.
#[test]
fn fixes_around_a_clock_step_back_between_two_polls_are_read() {
    for back in [3_000, 10_000, 29_000, 31_000, 3_600_000, 400 * 86_400_000] {
        for set_at in 60..80 {
            for late in [0, 5_000, 25_000].into_iter().filter(|late| *late < back) {
                let (mut watch, mut reader) = (Watch::new(rules()), Reader::new(BEGAN - 1));
                let shown =
                    |second| BEGAN + second * 1_000 - if second >= set_at { back } else { 0 };
                let inserts: Vec<_> = (0..140)
                    .map(|second| {
                        let place = if (66..72).contains(&second) { 0.35 } else { 0.25 };
                        let fix = fix(1, BEGAN + second * 1_000, place);
                        (Fix { inserted_at: shown(second), ..fix }, second * 1_000 + late)
                    })
                    .collect();
                let mut found = Vec::new();
                let is_polled = |second: &i64| back < 20_000 || !(60..80).contains(second);
                for second in (0..140).filter(is_polled) {
                    let at = second * 1_000 + 500;
                    let visible = inserts.iter().filter(|(_, visible_at)| *visible_at <= at);
                    let visible: Vec<_> = visible.map(|(fix, _)| (fix.clone(), i64::MIN)).collect();
                    let now = shown(second) + 500;
                    found.extend(poll_late(&mut reader, &mut watch, &visible, (at, now)));
                }
                let kinds: Vec<_> =
                    found.iter().map(|event| (event.kind, event.fence.as_str())).collect();
                let expected = [(Kind::Entered, "c"), (Kind::Left, "c")];
                assert_eq!(
                    kinds, expected,
                    "set back by {back} ms after {set_at} s, {late} ms late"
                );
            }
        }
    }
}

/// Two replicas, whose clocks differ, answer in turn. One of them receives all inserts.
#[test]
fn polls_of_replicas_whose_clocks_differ_read_few_spans() {
    for (ahead, late) in [(3_000, 0), (10_000, 5_000), (28_000, 25_000)] {
        for inserts_ahead in [0, ahead] {
            let (mut watch, mut reader) = (Watch::new(rules()), Reader::new(BEGAN - 1));
            let inserts: Vec<_> = (0..200)
                .map(|second| {
                    let place = if (100..110).contains(&second) { 0.35 } else { 0.25 };
                    let fix = fix(1, BEGAN + second * 1_000, place);
                    (Fix { inserted_at: fix.ts + inserts_ahead, ..fix }, second * 1_000 + late)
                })
                .collect();
            let mut found = Vec::new();
            for second in 0..240 {
                let at = second * 1_000 + 500;
                let visible = inserts.iter().filter(|(_, visible_at)| *visible_at <= at);
                let visible: Vec<_> = visible.map(|(fix, _)| (fix.clone(), i64::MIN)).collect();
                let now = BEGAN + at + if second % 3 == 0 { ahead } else { 0 };
                found.extend(poll_late(&mut reader, &mut watch, &visible, (at, now)));
                reader.begin(at + 1_000);
                let spans = reader.wanted().count();
                assert!(spans <= 3, "{ahead} ms: {spans} spans");
            }
            let kinds: Vec<_> =
                found.iter().map(|event| (event.kind, event.fence.as_str())).collect();
            let expected = [(Kind::Entered, "c"), (Kind::Left, "c")];
            assert_eq!(kinds, expected, "{ahead} ms, {inserts_ahead} ms, {late} ms late");
        }
    }
}

#[test]
fn crossings_within_a_millisecond_are_separate_events() {
    let mut watch = Watch::new(Rules { silent_for: None, ..rules() });
    let mut out = Vec::new();
    let places = [0.2999, 0.2999, 0.3001, 0.3001, 0.2999, 0.2999, 0.3001, 0.3001];
    for (seq, lng) in (0..).zip(places) {
        watch.handle_fix(Fix { seq, ..fix(1, BEGAN, lng) }, &mut out);
    }
    assert_eq!(summary(&out).len(), 3);
    assert_eq!(ids(&out).len(), 3, "{out:?}");
}

#[test]
fn known_events_override_the_replayed_fixes() {
    // Driver 1 is at the place of a fence before it is drawn. Driver 2 enters a fence that is then
    // removed.
    let at = |second: i64| {
        [(1, 0.35), (2, 0.05)].map(|(driver, lng)| fix(driver, BEGAN + second * 1_000, lng))
    };
    let fixes: Vec<Fix> = [0, 5, 65, 75].into_iter().flat_map(at).collect();
    let mut before = Watch::new(Rules {
        areas: vec![rules().areas.remove(0).with_limits(Limits::default())],
        silent_for: None,
        silent_gaps: 0.0,
        faster_than: None,
        fence_margin: 0.0,
    });
    let mut known = Vec::new();
    fixes[..4].iter().for_each(|fix| before.handle_fix(fix.clone(), &mut known));
    before.rules.areas = vec![rules().areas.remove(3)];
    before.handle_fix(fixes[4].clone(), &mut known);
    before.handle_fix(fixes[6].clone(), &mut known);
    assert_eq!(summary(&known), [(Kind::Entered, "a", 0), (Kind::Entered, "c", 65)]);

    let mut after = Watch::new(Rules {
        areas: vec![rules().areas.remove(3)],
        silent_for: None,
        silent_gaps: 0.0,
        faster_than: None,
        fence_margin: 0.0,
    });
    after.replay_known(known);
    let mut out = Vec::new();
    for fix in fixes {
        after.handle_fix(fix, &mut out);
    }
    assert_eq!(summary(&out), [(Kind::Left, "a", 65)]);
}

#[test]
fn new_fence_is_entered_and_removed_fence_is_left() {
    let mut watch = Watch::new(Rules {
        areas: vec![],
        silent_for: None,
        silent_gaps: 0.0,
        faster_than: None,
        fence_margin: 0.0,
    });
    let mut out = Vec::new();
    watch.handle_fix(fix(1, BEGAN, 0.35), &mut out);
    watch.rules.areas = rules().areas;
    watch.handle_fix(fix(1, BEGAN + 10_000, 0.35), &mut out);
    watch.handle_fix(fix(1, BEGAN + 20_000, 0.35), &mut out);
    watch.rules.areas.clear();
    watch.handle_fix(fix(1, BEGAN + 30_000, 0.35), &mut out);
    watch.handle_fix(fix(1, BEGAN + 40_000, 0.35), &mut out);
    assert_eq!(summary(&out), [(Kind::Entered, "c", 10), (Kind::Left, "c", 30)]);
}

#[test]
fn last_fence_that_is_removed_is_left_without_a_second_fix() {
    let no_limit = || Rules {
        areas: vec![],
        silent_for: None,
        silent_gaps: 0.0,
        faster_than: None,
        fence_margin: 0.0,
    };
    let mut watch = Watch::new(Rules { areas: rules().areas, ..no_limit() });
    let mut out = Vec::new();
    for second in [0, 10] {
        watch.handle_fix(fix(1, BEGAN + second * 1_000, 0.35), &mut out);
    }
    watch.rules = no_limit();
    watch.handle_fix(fix(1, BEGAN + 20_000, 0.35), &mut out);
    watch.tick(BEGAN + 140_000, &mut out);
    assert_eq!(summary(&out), [(Kind::Entered, "c", 0), (Kind::Left, "c", 20)]);
}

#[test]
fn known_events_of_an_erased_driver_are_forgotten() {
    let mut known = Vec::new();
    let mut first = Watch::new(rules());
    [0, 1].into_iter().for_each(|ms| first.handle_fix(fix(1, BEGAN + ms, 0.05), &mut known));
    assert!(known.iter().any(|event| event.kind == Kind::Entered));
    // The driver is erased before the next process replays.
    let mut restarted = Watch::new(rules());
    restarted.restore_states_before(known.iter());
    restarted.replay_known(known);
    restarted.forget(|id| id == "d1");
    let mut out = Vec::new();
    restarted.handle_fix(fix(2, BEGAN + 1_000, 0.25), &mut out);
    restarted.tick(BEGAN + 100_000, &mut out);
    assert_eq!((out, restarted.drivers()), (vec![], 1));
}

#[test]
fn erased_driver_is_forgotten() {
    let mut watch = Watch::new(rules());
    let mut out = Vec::new();
    watch.handle_fix(fix(1, BEGAN, 0.35), &mut out);
    watch.handle_fix(fix(2, BEGAN, 0.35), &mut out);
    watch.handle_fix(fix(1, BEGAN + 300_000, 0.25), &mut out);
    watch.handle_fix(fix(1, BEGAN + 600_000, 0.15), &mut out);
    watch.handle_fix(fix(1, BEGAN + 610_000, 0.15), &mut out);
    // The driver is inside b and has left c: subscribers have a state for each of the two.
    assert_eq!(
        watch.forget(|id| id == "d1"),
        [("d1".to_owned(), vec!["b".to_owned(), "c".to_owned()])]
    );
    out.clear();
    watch.tick(BEGAN + SILENT_FOR_MS, &mut out);
    assert!(!out.is_empty() && out.iter().all(|event| event.driver_id == "d2"), "{out:?}");
}

#[test]
fn names_of_kinds_are_unique() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(Kind::from_name("elsewhere"), None);
}

/// Rules with one fence, from 0.3 to 0.4 degrees. `until`: end of its validity, in seconds after
/// [`BEGAN`].
fn fence_until(until: i64, rules: FenceRules, silent_for: Option<i64>) -> Rules {
    let ring = vec![[0.3, 0.0], [0.4, 0.0], [0.4, 0.1], [0.3, 0.1], [0.3, 0.0]];
    let area = Area::new("c".to_owned(), 0, BEGAN + until * 1_000, vec![vec![ring]]);
    Rules {
        areas: vec![area.with_limits(limits(rules))],
        silent_for,
        silent_gaps: 0.0,
        faster_than: None,
        fence_margin: 30.0,
    }
}

#[test]
fn stay_is_measured_after_a_restart_without_a_fix_of_the_driver() {
    let rules = FenceRules { stay_max_s: Some(600), ..FenceRules::default() };
    let rules = || fence_until(1_000_000, rules.clone(), None);
    let mut known = Vec::new();
    let mut first = Watch::new(rules());
    first.handle_fix(fix(1, BEGAN - 1, 0.35), &mut known);
    first.handle_fix(fix(1, BEGAN, 0.35), &mut known);
    // After the restart, the last fix is too old to be read, but the state is restored.
    let mut restarted = Watch::new(rules());
    restarted.restore_event(&known[0]);
    let mut out = Vec::new();
    restarted.tick(BEGAN + 600_000, &mut out);
    assert_eq!(summary(&out), []);
    restarted.tick(BEGAN + 600_001, &mut out);
    assert_eq!(summary(&out), [(Kind::Overstayed, "c", 0)]);
    assert_eq!(out[0].driver_id, "d1");
}

#[test]
fn rules_of_an_ended_fence_cause_no_event() {
    let stay = FenceRules { stay_max_s: Some(600), ..FenceRules::default() };
    let stays = |until| {
        let mut watch = Watch::new(fence_until(until, stay.clone(), None));
        let mut out = Vec::new();
        watch.handle_fix(fix(1, BEGAN, 0.35), &mut out);
        watch.tick(BEGAN + 700_000, &mut out);
        // A later fix must not cause the event either.
        watch.handle_fix(fix(1, BEGAN + 710_000, 0.35), &mut out);
        out.into_iter().filter(|event| event.kind == Kind::Overstayed).count()
    };
    assert_eq!((stays(601), stays(600)), (1, 0));

    let silences = |until, silent_for_s| {
        let rules = FenceRules { silent_for_s: Some(silent_for_s), ..FenceRules::default() };
        let mut watch = Watch::new(fence_until(until, rules, Some(SILENT_FOR_MS)));
        let mut out = Vec::new();
        watch.handle_fix(fix(1, BEGAN, 0.35), &mut out);
        let silent_at = (1..2_000).find(|second| {
            watch.tick(BEGAN + second * 1_000, &mut out);
            out.iter().any(|event| event.kind == Kind::Silent)
        });
        silent_at.unwrap_or_default()
    };
    // While the fence is valid, its rule counts; after that, the fleet's.
    assert_eq!((silences(2_000, 300), silences(200, 300)), (300, 200));
    assert_eq!((silences(3_000, 0), silences(600, 0), silences(60, 0)), (0, 600, 120));
}

#[test]
fn speed_limit_of_a_fence_has_the_margin_of_its_border() {
    // The drive follows the west border, up to 20 m to either side, always above the limit.
    let steps: Vec<_> = (0..60)
        .map(|n| {
            let metres = 20.0 * f64::from(if n % 2 == 0 || n < 3 { 1 } else { -1 });
            (i64::from(n) * 10, 0.3 + metres / METRES_PER_DEGREE, Some(12.0))
        })
        .collect();
    let rules = FenceRules { speed_limit_kmh: Some(36.0), ..FenceRules::default() };
    assert_eq!(
        summary(&events_by(rules, &drive(&steps), None)),
        [(Kind::Entered, "c", 0), (Kind::Fast, "c", 0)]
    );
}

#[test]
fn longest_silence_limit_covers_the_fleet_and_the_fences() {
    let limit_ms = |silent_for_s, fleet| {
        let rules = FenceRules { silent_for_s, ..FenceRules::default() };
        fence_until(1, rules, fleet).longest_silence_limit()
    };
    assert_eq!(limit_ms(Some(28_800), Some(SILENT_FOR_MS)), 28_800_000);
    assert_eq!(limit_ms(Some(60), Some(SILENT_FOR_MS)), SILENT_FOR_MS);
    assert_eq!(limit_ms(Some(60), None), 60_000);
    // A fence in which no driver is ever silent does not count.
    assert_eq!(limit_ms(Some(0), Some(SILENT_FOR_MS)), SILENT_FOR_MS);
    assert_eq!(limit_ms(None, None), 0);
}

/// A known event decides its state: an older event of this state does not count. The clock is set
/// back by an hour. Without a lowest `known_at`, each event of the next hour would seem to be older
/// than the known events.
#[test]
fn events_after_a_clock_step_back_are_newer_than_known_ones() {
    const HOUR: i64 = 3_600_000;
    let before = fix(1, BEGAN - 60_000, 0.25);
    let known = [(Kind::Entered, BEGAN - 60_000), (Kind::Left, BEGAN - 1_000)].map(|(kind, at)| {
        let Fix { driver_id, lat, lng, speed, .. } = before.clone();
        Event {
            driver_id,
            kind,
            fence: "c".to_owned(),
            ts: at,
            seq: 0,
            lat,
            lng,
            speed,
            known_at: at,
        }
    });
    let (mut watch, mut reader) = (Watch::new(rules()), Reader::new(BEGAN - 900_000));
    watch.restore_fix(before);
    watch.replay_known(known.to_vec());
    let first = fix(1, BEGAN, 0.25);
    let mut found = poll(&mut reader, &mut watch, &[first], BEGAN + 1_000);
    for second in 2..20 {
        let inserts: Vec<_> = (2..=second)
            .map(|second| fix(1, BEGAN + second * 1_000, if second < 9 { 0.35 } else { 0.25 }))
            .map(|fix| (Fix { inserted_at: fix.ts - HOUR, ..fix }, i64::MIN))
            .collect();
        let at = BEGAN + second * 1_000;
        found.extend(poll_late(&mut reader, &mut watch, &inserts, (at, at - HOUR)));
    }
    let kinds: Vec<_> = found.iter().map(|event| (event.kind, event.fence.as_str())).collect();
    assert_eq!(kinds, [(Kind::Entered, "c"), (Kind::Left, "c")]);
    let times: Vec<_> = found.iter().map(|event| event.known_at).collect();
    assert!(times.is_sorted() && times[0] >= BEGAN - 1_000, "{times:?}");
}

/// All answers to one poll are full of fixes with the last insert time that the poll asks for.
#[test]
fn spans_end_even_if_their_last_answers_are_full() {
    let (mut watch, mut reader) = (Watch::new(rules()), Reader::new(BEGAN - 1));
    poll(&mut reader, &mut watch, &[], BEGAN);
    let now = BEGAN - 3_600_000;
    let answer = |inserted_at| {
        let fixes = vec![Fix { inserted_at, ..fix(1, BEGAN, 0.25) }];
        Inserted { fixes, is_cut: true, now, lag_ms: 0 }
    };
    reader.begin(BEGAN);
    assert!(reader.handle_answer(answer(now), &mut watch, &mut Vec::new()));
    let end = reader.wanted().map(|(_, until)| until).max().unwrap();
    assert!(end > BEGAN, "the poll reads the inserts before the step first");
    for _ in 0..2 {
        assert!(reader.handle_answer(answer(end), &mut watch, &mut Vec::new()));
        assert!(reader.wanted().next().is_some());
    }
}

#[test]
fn first_poll_reads_no_row_far_ahead_of_the_clock() {
    let mut reader = Reader::new(BEGAN);
    reader.begin(0);
    let ahead = [fix(1, BEGAN + 20_000, 0.25), fix(1, BEGAN + 3_600_000, 0.25)];
    let inserts = ahead.map(|fix| (fix, i64::MIN));
    assert_eq!(readable(&inserts, &reader, BEGAN + 1_000), [inserts[0].0.clone()]);
}

/// The previous process found events until its server's clock was set back by an hour.
#[test]
fn start_after_a_clock_step_back_neither_repeats_nor_hides_events() {
    const HOUR: i64 = 3_600_000;
    let now = BEGAN - HOUR;
    let last = fix(1, BEGAN - 1_000, 0.35);
    let Fix { driver_id, lat, lng, speed, ts, seq, .. } = last.clone();
    let fence = "c".to_owned();
    let entered =
        Event { driver_id, kind: Kind::Entered, fence, ts, seq, lat, lng, speed, known_at: ts };
    let (mut watch, mut reader) = (Watch::new(rules()), Reader::new(now));
    watch.restore_fix(last);
    watch.restore_event(&entered);
    watch.handle_clock_step(now, entered.known_at);
    let mut found = Vec::new();
    for second in 0..20 {
        let inserts: Vec<_> = (1..=second)
            .map(|second| fix(1, BEGAN + second * 1_000, if second < 9 { 0.35 } else { 0.25 }))
            .map(|fix| (Fix { inserted_at: fix.ts - HOUR, ..fix }, i64::MIN))
            .collect();
        let at = second * 1_000;
        found.extend(poll_late(&mut reader, &mut watch, &inserts, (at, now + at)));
    }
    let kinds: Vec<_> = found.iter().map(|event| (event.kind, event.fence.as_str())).collect();
    assert_eq!(kinds, [(Kind::Left, "c")]);
    assert!(found[0].known_at >= ts, "{found:?}");
}

#[test]
fn clock_step_restarts_each_silence() {
    const HOUR: i64 = 3_600_000;
    // A silence may last twenty minutes in the fence, and two elsewhere. d1 is inside, d2 is not.
    let rules = FenceRules { silent_for_s: Some(1_200), ..FenceRules::default() };
    let rules = fence_until(10_000_000, rules, Some(SILENT_FOR_MS));
    let (mut watch, mut reader) = (Watch::new(rules), Reader::new(BEGAN - 1));
    let inserts: Vec<_> =
        [fix(1, BEGAN, 0.35), fix(2, BEGAN, 0.25)].map(|fix| (fix, i64::MIN)).into();
    let mut silent = Vec::new();
    for second in 0..2_000 {
        let now = BEGAN + second * 1_000 + if second >= 60 { HOUR } else { 0 };
        let found = poll_late(&mut reader, &mut watch, &inserts, (second * 1_000, now));
        let found = found.into_iter().filter(|event| event.kind == Kind::Silent);
        silent.extend(found.map(|event| (event.driver_id, second)));
    }
    // The step is at 60 s, and polls are two seconds behind.
    assert_eq!(silent, [("d2".to_owned(), 182), ("d1".to_owned(), 1_262)]);
}

#[test]
fn changed_hours_do_not_rejudge_a_known_crossing() {
    // BEGAN is a Thursday, 08:53:20 UTC.
    let rules = |hours: &str| {
        let rules = FenceRules { hours: Some(hours.to_owned()), ..FenceRules::default() };
        fence_until(1_000_000, rules, None)
    };
    let steps = drive(&[(0, 0.25, None), (300, 0.31, None), (900, 0.42, None)]);
    let known = events_of(&mut Watch::new(rules("08:00-10:00")), &steps[..2], BEGAN + 600_000);
    assert_eq!(summary(&known), [(Kind::Entered, "c", 300)]);
    // After a restart with other hours, the known crossing is still judged by the earlier hours.
    let mut restarted = Watch::new(rules("10:00-11:00"));
    restarted.restore_states_before(known.iter());
    restarted.replay_known(known.clone());
    let found = events_of(&mut restarted, &steps, BEGAN + 1_020_000);
    let new: Vec<_> =
        found.into_iter().filter(|event| !ids(&known).contains(&event.id())).collect();
    assert_eq!(summary(&new), [(Kind::Left, "c", 900), (Kind::OffHours, "c", 900)]);
}

#[test]
fn stay_that_arrives_in_one_insert_is_restored_in_table_order() {
    let rules = FenceRules { stay_max_s: Some(600), ..FenceRules::default() };
    let rules = || fence_until(1_000_000, rules.clone(), None);
    // A device sends its whole stay of 700 s in one message.
    let late = |second: i64, lng: f64| Fix {
        inserted_at: BEGAN + 700_000,
        ..fix(1, BEGAN + second * 1_000, lng)
    };
    let inserts = [late(0, 0.35), late(700, 0.351)];
    let mut known = events_of(&mut Watch::new(rules()), &inserts, BEGAN + 701_000);
    // The order in which `EventStore` reads them.
    known.sort_by_key(|event| (event.known_at, event.ts, event.seq, event.kind.name()));
    assert_eq!(summary(&known), [(Kind::Entered, "c", 0), (Kind::Overstayed, "c", 0)]);
    let next = Fix { inserted_at: BEGAN + 1_500_000, ..fix(1, BEGAN + 1_500_000, 0.352) };
    let found = |known: Vec<Event>| {
        let mut restarted = Watch::new(rules());
        restarted.restore_states_before(known.iter());
        restarted.replay_known(known);
        events_of(&mut restarted, std::slice::from_ref(&next), BEGAN + 1_600_000)
    };
    assert_eq!(summary(&found(known.clone())), []);
    // In the reverse order, the stay would be reported again.
    known.reverse();
    assert!(!found(known).is_empty());
}
