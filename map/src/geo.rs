//! Computes the position of a place in the square of a Web Mercator map, and its tile at each zoom.

use std::f64::consts::PI;

/// Bits of a [`key`] per axis. The finest step is 38 m at the equator.
const BITS: u32 = 20;
/// Bits of a [`key`].
pub const KEY_BITS: u32 = 2 * BITS;

/// A square of the map at a zoom: x from the antimeridian eastwards, y from 85.05° north
/// southwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tile {
    /// 0: the whole world.
    pub z: u8,
    /// Below 2^z.
    pub x: u32,
    /// Below 2^z.
    pub y: u32,
}

impl Tile {
    /// The finest zoom of tiles.
    pub const Z_MAX: u8 = 14;

    /// Creates a tile; `None`: the zoom has no tile with these numbers.
    #[must_use]
    pub fn new(z: u8, x: u32, y: u32) -> Option<Self> {
        (z <= Self::Z_MAX && x < 1 << z && y < 1 << z).then_some(Self { z, x, y })
    }

    /// Returns the range of [`key`]s of the places in the tile; the end is exclusive.
    #[must_use]
    pub fn keys(self) -> (u64, u64) {
        let shift = KEY_BITS - 2 * u32::from(self.z);
        let prefix = interleave(self.x, self.y);
        (prefix << shift, (prefix + 1) << shift)
    }
}

/// Returns the position of a place on the Z-order curve, on which every tile of every zoom is one
/// contiguous range. Places beyond 85.05° are in the outermost tiles.
#[must_use]
pub fn key(lat_e7: i32, lng_e7: i32) -> u64 {
    let (x, y) = square(f64::from(lat_e7) / 1e7, f64::from(lng_e7) / 1e7);
    interleave(scaled(x), scaled(y))
}

/// Returns the position of a place in the square of the map: x from 0 at the antimeridian to 1
/// eastwards, y from 0 at 85.05° north to 1 southwards; clamped.
#[must_use]
pub fn square(lat: f64, lng: f64) -> (f64, f64) {
    let x = (lng + 180.0) / 360.0;
    let y = 0.5 - lat.to_radians().tan().asinh() / (2.0 * PI);
    (x.clamp(0.0, 1.0), y.clamp(0.0, 1.0))
}

/// Scales a share of the map's side to a whole number of [`BITS`] bits.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0..=1 times 2^20")]
fn scaled(share: f64) -> u32 {
    ((share * f64::from(1_u32 << BITS)) as u32).min((1 << BITS) - 1)
}

/// Interleaves the bits of x and y. In each pair, y's bit is the higher one.
fn interleave(x: u32, y: u32) -> u64 {
    spread(x) | spread(y) << 1
}

/// Inserts a zero before each bit.
fn spread(value: u32) -> u64 {
    let mut bits = u64::from(value);
    bits = (bits | bits << 16) & 0x0000_ffff_0000_ffff;
    bits = (bits | bits << 8) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits << 2) & 0x3333_3333_3333_3333;
    (bits | bits << 1) & 0x5555_5555_5555_5555
}
