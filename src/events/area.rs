//! Whether a fix is in a fence.

use super::Fix;

/// A row of `fences`: rings of `[lng, lat]`, each polygon's outline first.
#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    pub name: String,
    valid_from: i64,
    valid_until: i64,
    polygons: Vec<Vec<Vec<[f64; 2]>>>,
    /// West, south, east, north.
    bounds: [f64; 4],
}

impl Area {
    #[must_use]
    pub fn new(name: String, valid_from: i64, valid_until: i64, polygons: Vec<Vec<Vec<[f64; 2]>>>) -> Self {
        let none = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
        let bounds =
            polygons.iter().flatten().flatten().fold(none, |[west, south, east, north], [lng, lat]| {
                [west.min(*lng), south.min(*lat), east.max(*lng), north.max(*lat)]
            });
        Self { name, valid_from, valid_until, polygons, bounds }
    }

    /// The fix is inside, and of a time at which the fence is valid.
    #[must_use]
    pub fn has(&self, fix: &Fix) -> bool {
        let [west, south, east, north] = self.bounds;
        (self.valid_from..self.valid_until).contains(&fix.ts)
            && (west..=east).contains(&fix.lng)
            && (south..=north).contains(&fix.lat)
            // Inside the outline and no hole: the ray to the east meets an odd number of edges of all rings.
            && self.polygons.iter().any(|rings| rings.iter().map(|ring| crossings(ring, fix)).sum::<usize>() % 2 == 1)
    }
}

/// Edges of a closed ring that a ray from the fix to the east meets.
fn crossings(ring: &[[f64; 2]], fix: &Fix) -> usize {
    let meets = |edge: &&[[f64; 2]]| {
        let [[ax, ay], [bx, by]] = [edge[0], edge[1]];
        (ay > fix.lat) != (by > fix.lat) && fix.lng < ax + (fix.lat - ay) / (by - ay) * (bx - ax)
    };
    ring.windows(2).filter(meets).count()
}
