//! The fleet in memory: correct for any order of fixes, bounded, and within the documented memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use milepost_map::fleet::directory::Directory;
use milepost_map::fleet::filter::{Ages, Scope, summary};
use milepost_map::fleet::{DRIVER_BYTES, Fix, Fleet};
use milepost_map::geo::Tile;
use proptest::prelude::*;

use crate::tiles::fix;

const AGES: Ages = Ages { silent_s: 300, hidden_s: 86_400 };

#[derive(Debug, Clone)]
enum Step {
    /// A fix: number of the driver, time in milliseconds, latitude.
    Update(u8, i64, f64),
    Commit,
    /// A full read that contains only the drivers below this number.
    Pass(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u8..20, 0_i64..50, -89.0_f64..89.0)
            .prop_map(|(driver, ts, lat)| Step::Update(driver, ts, lat)),
        2 => Just(Step::Commit),
        1 => (0_u8..25).prop_map(Step::Pass),
    ]
}

/// Number of drivers, enough for vectors to grow many times.
const DRIVERS: usize = 10_000;
/// Longest id of these drivers, in bytes.
const ID_BYTES: usize = 14;

/// Returns a fix at this time and latitude.
fn moved(ts: i64, lat: f64) -> Fix {
    Fix { ts_ms: ts, received_ms: ts, ..fix(lat, lat * 2.0) }
}

proptest! {
    #![proptest_config(crate::cases::cases(256))]

    #[test]
    fn greatest_fix_of_each_driver_wins_in_any_order(
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let (mut fleet, mut model) = (Fleet::new(1_000), BTreeMap::<String, Fix>::new());
        for step in steps {
            match step {
                Step::Update(driver, ts, lat) => {
                    let (name, fix) = (format!("d{driver}"), moved(ts, lat));
                    fleet.update(name.as_bytes(), fix);
                    let known = model.entry(name).or_insert(fix);
                    *known = fix.max(*known);
                }
                Step::Commit => { fleet.commit(); }
                Step::Pass(below) => {
                    model.retain(|name, _| name[1..].parse::<u8>().unwrap() < below);
                    fleet.begin_full_read();
                    model.iter().for_each(|(name, fix)| fleet.update(name.as_bytes(), *fix));
                    fleet.end_full_read();
                }
            }
        }
        fleet.commit();
        prop_assert_eq!(fleet.len(), model.len());
        let everybody = fleet.in_tile(Tile::new(0, 0, 0).unwrap());
        prop_assert_eq!(everybody.len(), model.len());
        prop_assert!(everybody.is_sorted_by_key(|row| row.place()));
        for row in everybody {
            let id = String::from_utf8(fleet.id(row.number()).to_vec()).unwrap();
            prop_assert_eq!((row.lat_e7, row.lng_e7), (model[&id].lat_e7, model[&id].lng_e7));
        }
        for (name, fix) in &model {
            prop_assert_eq!(fleet.find(name), Some(fix));
        }
        let recent = model.values().filter(|fix| fix.received_ms >= 25).count();
        prop_assert_eq!(summary(&fleet, &Arc::default(), AGES, 60_025).seen_1m, recent);
        let expected = model.keys().filter(|name| name.starts_with("d1"));
        let expected: Vec<&str> = expected.map(String::as_str).take(4).collect();
        prop_assert_eq!(fleet.search("d1", |_| true, 4), expected);
    }
}

#[test]
fn drivers_above_the_limit_are_counted_and_not_kept() {
    let mut fleet = Fleet::new(100);
    for n in 0..150 {
        fleet.update(format!("d{n}").as_bytes(), moved(1, 1.0));
    }
    fleet.update(b"", moved(1, 1.0));
    fleet.update(&[b'x'; 65], moved(1, 1.0));
    fleet.commit();
    assert_eq!((fleet.len(), fleet.left_out()), (100, 52));
    // Known drivers are still updated.
    fleet.update(b"d7", moved(9, 2.0));
    assert_eq!(fleet.find("d7").unwrap().ts_ms, 9);
    fleet.begin_full_read();
    assert_eq!(fleet.left_out(), 0);
}

#[test]
fn memory_matches_the_formula_and_does_not_grow() {
    let mut fleet = Fleet::new(1_000_000);
    let everybody = |fleet: &mut Fleet, ts: i64| {
        for n in 0..DRIVERS {
            let place =
                i32::try_from((n * 7 + usize::try_from(ts).unwrap() * 13) % 17_000).unwrap();
            fleet.update(
                format!("driver-{n:07}").as_bytes(),
                moved(ts, f64::from(place) / 100.0 - 85.0),
            );
        }
        fleet.commit();
    };
    everybody(&mut fleet, 0);
    let first = fleet.memory_bytes();
    // Vectors that grow take up to twice as much.
    assert!(first <= 2 * DRIVERS * (DRIVER_BYTES + ID_BYTES), "{first}");
    for ts in 1..20 {
        everybody(&mut fleet, ts);
    }
    let later = fleet.memory_bytes();
    assert!(later <= 2 * DRIVERS * (DRIVER_BYTES + ID_BYTES), "{later}");
    // Other drivers come and go: their ids do not leak memory.
    for round in 1..20 {
        fleet.begin_full_read();
        for n in 0..DRIVERS {
            fleet.update(format!("r{round:02}-{n:08}").as_bytes(), moved(1, 1.0));
        }
        fleet.end_full_read();
        fleet.commit();
        assert_eq!(fleet.len(), DRIVERS);
    }
    let much_later = fleet.memory_bytes();
    assert!(
        much_later <= 4 * DRIVERS * (DRIVER_BYTES + ID_BYTES),
        "{much_later}: both passes' drivers at once"
    );
}

#[test]
fn driver_has_its_group_even_if_names_were_known_first() {
    let names = [("d1".to_owned(), "Anna".to_owned(), "north".to_owned())];
    let north = Arc::new(Scope::Only { groups: ["north".to_owned()].into(), drivers: [].into() });
    for is_named_first in [true, false] {
        let mut fleet = Fleet::new(DRIVERS);
        let directory = Arc::new(Directory::new(names.clone()));
        if is_named_first {
            fleet.set_directory(Arc::clone(&directory));
        }
        for id in ["d1", "d2"] {
            fleet.update(id.as_bytes(), moved(1, 1.0));
        }
        fleet.commit();
        if !is_named_first {
            fleet.set_directory(directory);
        }
        assert_eq!(summary(&fleet, &north, AGES, 1_000).drivers, 1, "{is_named_first}");
    }
}

#[test]
fn drivers_are_found_by_name_in_the_order_of_their_ids() {
    let mut fleet = Fleet::new(DRIVERS);
    let names = [("d3", "Anna"), ("d1", "Hanna"), ("d2", "Ben"), ("anna-1", "Anna")];
    for (id, _) in names {
        fleet.update(id.as_bytes(), moved(1, 1.0));
    }
    fleet.commit();
    let names = names.map(|(id, name)| (id.to_owned(), name.to_owned(), String::new()));
    fleet.set_directory(Arc::new(Directory::new(names)));
    assert_eq!(fleet.find_by_name("anna", |_| true, 9), ["d1", "d3"], "not by the id");
    assert_eq!(fleet.find_by_name("anna", |_| true, 1), ["d1"]);
    let d1 = fleet.number("d1").unwrap();
    assert_eq!(fleet.find_by_name("anna", |number| number != d1, 9), ["d3"]);
}

#[test]
fn unread_group_is_asked_of_clickhouse_and_stays_within_the_scope() {
    let only = |groups: &[&str], drivers: &[&str]| {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Arc::new(Scope::Only { groups: set(groups), drivers: set(drivers) })
    };
    let mut fleet = Fleet::new(DRIVERS);
    for scope in [Arc::default(), only(&["north"], &["d2"])] {
        assert_eq!(scope.in_group(&fleet, "north"), only(&[], &[]));
        assert_eq!(scope.in_named_group(&fleet, "north"), only(&["north"], &[]));
    }
    assert_eq!(only(&["south"], &["d1"]).in_named_group(&fleet, "north"), only(&[], &[]));
    let names = [("d1", "north"), ("d2", "south")];
    let names = names.map(|(id, group)| (id.to_owned(), String::new(), group.to_owned()));
    fleet.set_directory(Arc::new(Directory::new(names)));
    for scope in [Arc::default(), only(&["north"], &["d2"])] {
        assert_eq!(scope.in_group(&fleet, "north"), only(&["north"], &[]));
        assert_eq!(scope.in_named_group(&fleet, ""), scope);
    }
    let two = only(&["south"], &["d1", "d2"]);
    assert_eq!(two.in_group(&fleet, "north"), only(&[], &["d1"]));
    assert_eq!(two.in_named_group(&fleet, "north"), only(&[], &["d1"]));
}
