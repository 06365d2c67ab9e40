//! Whether a fix is in a fence.

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

    /// This place is inside, and the fence is valid at this time.
    #[must_use]
    pub fn has(&self, ts: i64, [lng, lat]: [f64; 2]) -> bool {
        let [west, south, east, north] = self.bounds;
        (self.valid_from..self.valid_until).contains(&ts)
            && (west..=east).contains(&lng)
            && (south..=north).contains(&lat)
            // Inside the outline and no hole: the ray to the east meets an odd number of edges of all rings.
            && self.polygons.iter().any(|rings| rings.iter().map(|ring| crossings(ring, [lng, lat])).sum::<usize>() % 2 == 1)
    }
}

/// Edges of a closed ring that a ray from there to the east meets.
fn crossings(ring: &[[f64; 2]], [lng, lat]: [f64; 2]) -> usize {
    let meets = |edge: &&[[f64; 2]]| {
        let [[ax, ay], [bx, by]] = [edge[0], edge[1]];
        (ay > lat) != (by > lat) && lng < ax + (lat - ay) / (by - ay) * (bx - ax)
    };
    ring.windows(2).filter(meets).count()
}
