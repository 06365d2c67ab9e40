//! A response with many tiles contains each of them unchanged, with gzip and without.

use std::io::Read as _;
use std::sync::Arc;

use flate2::read::GzDecoder;
use milepost_map::fleet::Fleet;
use milepost_map::geo::Tile;
use milepost_map::tiles::{Kind, cut};
use milepost_map::wire::{Part, joined};
use proptest::prelude::*;

use crate::tile_format::read_all;
use crate::tiles::fix;

const NOW_MS: i64 = 1_760_000_000_123;

/// Cuts a tile that has `drivers` drivers, all in one place.
fn part(z: u8, drivers: usize, now_ms: i64) -> Arc<Part> {
    let mut fleet = Fleet::new(1_000_000);
    (0..drivers).for_each(|n| fleet.update(format!("d{n}").as_bytes(), fix(90.0, -180.0)));
    fleet.commit();
    let tile = Tile::new(z, 0, 0).unwrap();
    Arc::new(Part::new(
        tile,
        &cut(&fleet, tile, Kind::Points, &crate::tiles::everyone(&fleet), now_ms),
    ))
}

fn unpacked(gzip: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    // Reads only the first gzip stream, as browsers do: there must be no second one.
    GzDecoder::new(gzip).read_to_end(&mut plain).unwrap();
    plain
}

proptest! {
    #![proptest_config(crate::cases::cases(30))]
    #[test]
    fn gzip_stream_decompresses_to_the_same_bytes(
        sizes in proptest::collection::vec(prop_oneof![0_usize..20, 20_usize..5_000], 0..20),
    ) {
        let parts: Vec<_> = sizes.iter().map(|size| part(14, *size, NOW_MS)).collect();
        let plain = joined(&parts, false).concat();
        let gzip = joined(&parts, true).concat();
        prop_assert_eq!(&unpacked(&gzip), &plain);
        let found = read_all(&plain);
        prop_assert_eq!(found.len(), sizes.len());
        for (found, (part, size)) in found.iter().zip(parts.iter().zip(sizes)) {
            prop_assert_eq!((found.name.as_str(), found.version), ("14/0/0", part.version));
            prop_assert_eq!(found.tile.ids.len(), size);
            prop_assert_eq!(found.tile.now_ms, NOW_MS as f64);
        }
    }
}

#[test]
fn large_tiles_are_compressed_and_small_ones_hardly_grow() {
    let bytes = |parts: &[Arc<Part>], gzip| joined(parts, gzip).concat().len();
    let (large, small) = ([part(14, 5_000, NOW_MS)], [part(14, 1, NOW_MS), part(14, 0, NOW_MS)]);
    assert!(bytes(&large, true) < bytes(&large, false) / 3);
    assert!(bytes(&small, true) < bytes(&small, false) + 40);
}

#[test]
fn version_depends_on_the_content_alone() {
    let version = |z, drivers, now_ms| part(z, drivers, now_ms).version;
    assert_eq!(version(3, 2, NOW_MS), version(3, 2, NOW_MS + 1_000), "the time does not count");
    assert_ne!(version(3, 2, NOW_MS), version(3, 3, NOW_MS));
}
