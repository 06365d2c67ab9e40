//! Every driver is in exactly one tile of each zoom, and is read from it unchanged.

use std::collections::BTreeMap;

use milepost_map::fleet::filter::{Ages, Filter, Selection};
use milepost_map::fleet::{Fix, Fleet, UNKNOWN};
use milepost_map::geo::{Tile, square};
use milepost_map::tiles::{Kind, cut, kind};
use proptest::prelude::*;

use crate::tile_format::{DecodedTile, read};

const NOW_MS: i64 = 1_760_000_000_123;

/// Returns a fix at this place, at 12.4 m/s.
pub fn fix(lat: f64, lng: f64) -> Fix {
    #[expect(clippy::cast_possible_truncation, reason = "degrees times 1e7")]
    let e7 = |degrees: f64| (degrees * 1e7).round() as i32;
    Fix {
        ts_ms: 1_759_999_990_000,
        seq: 0,
        lat_e7: e7(lat),
        lng_e7: e7(lng),
        speed_cms: 1_240,
        heading_cdeg: 27_100,
        alt_dm: i32::MAX,
        acc_dm: UNKNOWN,
        received_ms: 1_759_999_991_000,
    }
}

/// Returns a filter that shows every driver, however old its fix is.
pub fn everyone(fleet: &Fleet) -> Filter<'_> {
    let selection = Selection { states: u8::MAX, ..Selection::default() };
    Filter::new(fleet, &selection, Ages { silent_s: 300, hidden_s: 86_400 }, NOW_MS)
}

fn fleet(places: &[(f64, f64)]) -> Fleet {
    let mut fleet = Fleet::new(1_000_000);
    for (index, (lat, lng)) in places.iter().enumerate() {
        fleet.update(format!("d{index}").as_bytes(), fix(*lat, *lng));
    }
    fleet.commit();
    fleet
}

/// Returns the tile of a place, computed without the Z-order curve.
fn tile_of(z: u8, lat: f64, lng: f64) -> Tile {
    let (x, y) = square(lat, lng);
    let tiles_per_side = f64::from(1_u32 << z);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^z - 1")]
    let number = |share: f64| (share * tiles_per_side).floor().min(tiles_per_side - 1.0) as u32;
    Tile::new(z, number(x), number(y)).unwrap()
}

fn tile(fleet: &Fleet, z: u8, x: u32, y: u32) -> DecodedTile {
    read(&cut(fleet, Tile::new(z, x, y).unwrap(), Kind::Points, &everyone(fleet), NOW_MS))
}

#[test]
fn known_places_are_in_their_slippy_map_tiles() {
    // Tile numbers as web maps use them (slippy map).
    for (lat, lng, z, x, y) in [
        (0.0, 0.0, 1, 1, 1),
        (51.4934, 0.0098, 12, 2048, 1362),
        (25.7617, -80.1918, 10, 283, 436),
        (-33.8568, 151.2153, 14, 15073, 9831),
    ] {
        let fleet = fleet(&[(lat, lng)]);
        assert_eq!(tile(&fleet, z, x, y).ids, ["d0"], "{lat} {lng}");
        assert_eq!(tile_of(z, lat, lng), Tile::new(z, x, y).unwrap());
    }
}

#[test]
fn map_edges_are_in_the_outermost_tiles() {
    for (lat, lng, x, y) in [
        (0.000_1, -180.0, 0, 1),
        (0.000_1, 180.0, 3, 1),
        (90.0, 0.1, 2, 0),
        (-90.0, 0.1, 2, 3),
        (85.06, -179.9, 0, 0),
        (-85.06, 179.9, 3, 3),
        (0.0, 0.0, 2, 2),
    ] {
        let fleet = fleet(&[(lat, lng)]);
        let found = tile(&fleet, 2, x, y);
        assert_eq!(found.ids, ["d0"], "{lat} {lng}");
        assert_eq!(
            (found.lat_e7[0], found.lng_e7[0]),
            (fix(lat, lng).lat_e7, fix(lat, lng).lng_e7),
            "the exact place"
        );
    }
}

#[test]
fn tile_round_trips_every_driver() {
    let mut fleet = Fleet::new(10);
    let unknown = Fix { speed_cms: UNKNOWN, heading_cdeg: UNKNOWN, ..fix(48.1, 11.5) };
    fleet.update("é-driver".as_bytes(), fix(48.2, 11.5));
    fleet.update(b"b", unknown);
    fleet.commit();
    let found = tile(&fleet, 0, 0, 0);
    assert_eq!(found.now_ms, NOW_MS as f64);
    assert_eq!(found.ids, ["é-driver", "b"], "in the order of the curve: from the north");
    assert_eq!(found.lat_e7, [482_000_000, 481_000_000]);
    assert_eq!(found.ts_s, [1_759_999_990; 2]);
    assert_eq!(found.speed_cms, [1_240, UNKNOWN]);
    assert_eq!(found.heading_cdeg, [27_100, UNKNOWN]);
    assert_eq!(
        tile(&fleet, 14, 0, 0),
        DecodedTile { now_ms: NOW_MS as f64, ..DecodedTile::default() },
        "no drivers"
    );
}

#[test]
fn crowded_tile_is_grouped_into_cells() {
    let town: Vec<(f64, f64)> = (0..2_000)
        .map(|n| (48.0 + f64::from(n % 50) * 1e-3, 11.0 + f64::from(n / 50) * 1e-3))
        .collect();
    let fleet = fleet(&town);
    let world =
        read(&cut(&fleet, Tile::new(0, 0, 0).unwrap(), Kind::Cells, &everyone(&fleet), NOW_MS));
    assert!(world.is_cells && world.counts.iter().sum::<u32>() == 2_000, "{world:?}");
    let mean = town.iter().map(|(lat, _)| lat).sum::<f64>() / 2_000.0;
    assert!((f64::from(world.lat_e7[0]) / 1e7 - mean).abs() < 1e-6, "the mean of their places");
    assert_eq!((world.speed_cms[0], world.ts_s[0]), (1_240, 1_759_999_990));
}

#[test]
fn all_tiles_of_a_view_have_one_kind() {
    // Every driver is in one of the four tiles.
    let fleet = fleet(&(0..100).map(|n| (48.0 + f64::from(n) * 1e-3, 11.0)).collect::<Vec<_>>());
    let view: Vec<Tile> = (0..4).map(|n| Tile::new(1, n % 2, n / 2).unwrap()).collect();
    let kind_of = |tiles: &[Tile], points_max| {
        kind(&fleet, tiles.iter().copied(), &everyone(&fleet), points_max)
    };
    assert_eq!(kind_of(&view, 100), Kind::Points);
    assert_eq!(kind_of(&view, 99), Kind::Cells);
    assert_eq!(kind_of(&view[2..], 0), Kind::Points, "no driver is in the south");
}

proptest! {
    #![proptest_config(crate::cases::cases(256))]

    #[test]
    fn every_driver_is_in_exactly_one_tile_of_each_zoom(
        places in proptest::collection::vec((-90.0_f64..=90.0, -180.0_f64..=180.0), 1..40),
        z in 0_u8..=14,
    ) {
        let fleet = fleet(&places);
        let mut by_tile = BTreeMap::<(u32, u32), Vec<String>>::new();
        for (index, (lat, lng)) in places.iter().enumerate() {
            // Rounded as stored, in units of 1e-7 degrees.
            let stored = fix(*lat, *lng);
            let tile = tile_of(z, f64::from(stored.lat_e7) / 1e7, f64::from(stored.lng_e7) / 1e7);
            by_tile.entry((tile.x, tile.y)).or_default().push(format!("d{index}"));
        }
        for ((x, y), mut expected) in by_tile {
            let mut found = tile(&fleet, z, x, y).ids;
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
        }
    }

    /// The counts of a tile's cells add up to its drivers, at any zoom.
    #[test]
    fn cells_add_up_to_the_drivers_of_their_tile(
        places in proptest::collection::vec((47.0_f64..49.0, 10.0_f64..12.0), 30..200),
        z in 0_u8..=14,
    ) {
        let fleet = fleet(&places);
        let (lat, lng) = places[0];
        let first = tile_of(z, lat, lng);
        let expected = fleet.in_tile(first).len();
        let found = read(&cut(&fleet, first, Kind::Cells, &everyone(&fleet), NOW_MS));
        prop_assert_eq!(found.counts.iter().sum::<u32>() as usize, expected);
    }
}
