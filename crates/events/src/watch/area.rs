//! Decides whether a fix is inside a fence.

/// A row of `fences`: rings of `[lng, lat]`, each polygon's outline first. An open ring counts as
/// closed, as in ClickHouse.
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
    pub fn new(
        name: String,
        valid_from: i64,
        valid_until: i64,
        polygons: Vec<Vec<Vec<[f64; 2]>>>,
    ) -> Self {
        let none = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
        let bounds = polygons.iter().flatten().flatten().fold(
            none,
            |[west, south, east, north], [lng, lat]| {
                [west.min(*lng), south.min(*lat), east.max(*lng), north.max(*lat)]
            },
        );
        Self { name, valid_from, valid_until, polygons, bounds }
    }

    /// Returns whether the place is inside and the fence is valid at this time.
    #[must_use]
    pub fn has(&self, ts: i64, [lng, lat]: [f64; 2]) -> bool {
        let [west, south, east, north] = self.bounds;
        (self.valid_from..self.valid_until).contains(&ts)
            && (west..=east).contains(&lng)
            && (south..=north).contains(&lat)
            // Inside the outline and no hole: the ray to the east meets an odd number of edges of
            // all rings.
            && self.polygons.iter().any(|rings| rings.iter().map(|ring| crossings(ring, [lng, lat])).sum::<usize>() % 2 == 1)
    }
}

/// Counts the edges of a ring that a ray from this point to the east crosses. The last point of the
/// ring may repeat the first.
fn crossings(ring: &[[f64; 2]], [lng, lat]: [f64; 2]) -> usize {
    let meets = |&([ax, ay], [bx, by]): &(&[f64; 2], &[f64; 2])| {
        (ay > &lat) != (by > &lat) && lng < ax + (lat - ay) / (by - ay) * (bx - ax)
    };
    ring.iter().zip(ring.iter().cycle().skip(1)).filter(meets).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_ring_counts_as_closed() {
        let square = vec![[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]];
        let closed = [square.clone(), vec![square[0]]].concat();
        for ring in [square, closed] {
            let area = Area::new("square".to_owned(), 0, 1, vec![vec![ring]]);
            assert!(
                area.has(0, [0.1, 1.0]) && area.has(0, [1.9, 1.0]),
                "also beside the edge that was not drawn"
            );
            assert!(!area.has(0, [-0.1, 1.0]) && !area.has(0, [2.1, 1.0]));
        }
        assert!(!Area::new("none".to_owned(), 0, 1, vec![vec![vec![]]]).has(0, [0.0, 0.0]));
    }
}
