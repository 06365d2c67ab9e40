//! Decides whether a fix is inside a fence, or near its border.

use super::limits::Limits;

/// Length of a degree of latitude in metres, on a sphere with the mean radius of the earth.
const METRES_PER_DEGREE: f64 = 111_195.0;

/// A row of `fences`: rings of `[lng, lat]`, each polygon's outline first. An open ring counts as
/// closed, as in ClickHouse.
#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    pub name: String,
    /// Milliseconds since 1970.
    valid_from: i64,
    /// Milliseconds since 1970, exclusive.
    valid_until: i64,
    polygons: Vec<Vec<Vec<[f64; 2]>>>,
    /// West, south, east, north.
    bounds: [f64; 4],
    pub limits: Limits,
}

impl Area {
    #[must_use]
    pub fn new(
        name: String,
        valid_from: i64,
        valid_until: i64,
        polygons: Vec<Vec<Vec<[f64; 2]>>>,
    ) -> Self {
        let empty = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
        let bounds = polygons.iter().flatten().flatten().fold(
            empty,
            |[west, south, east, north], [lng, lat]| {
                [west.min(*lng), south.min(*lat), east.max(*lng), north.max(*lat)]
            },
        );
        Self { name, valid_from, valid_until, polygons, bounds, limits: Limits::default() }
    }

    /// Replaces the rules of the fence.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Returns whether the fence applies to this driver.
    #[must_use]
    pub fn is_for(&self, driver_id: &str) -> bool {
        self.limits.drivers.is_empty() || self.limits.drivers.contains(driver_id)
    }

    /// Returns whether the fence is valid at this time.
    #[must_use]
    pub fn is_valid(&self, ts: i64) -> bool {
        (self.valid_from..self.valid_until).contains(&ts)
    }

    /// Returns whether the fence is valid at this time and its border is at most `margin` metres
    /// away, even across the antimeridian.
    #[must_use]
    pub fn is_near(&self, ts: i64, [lng, lat]: [f64; 2], margin: f64) -> bool {
        if margin <= 0.0 || !self.is_valid(ts) {
            return false;
        }
        // Use the length of a degree at this latitude for the whole fence: exact enough within the
        // margin.
        let metres_per_degree_lng = METRES_PER_DEGREE * lat.to_radians().cos();
        let (margin_lat, margin_lng) = (margin / METRES_PER_DEGREE, margin / metres_per_degree_lng);
        let [west, south, east, north] = self.bounds;
        let is_in_box = |lng: &f64| {
            (west - margin_lng..=east + margin_lng).contains(lng)
                && (south - margin_lat..=north + margin_lat).contains(&lat)
        };
        [lng, lng - 360.0, lng + 360.0].into_iter().filter(is_in_box).any(|lng| {
            // Metres to the east and to the north of the place.
            let to_metres = |[x, y]: [f64; 2]| {
                [(x - lng) * metres_per_degree_lng, (y - lat) * METRES_PER_DEGREE]
            };
            self.polygons.iter().flatten().any(|ring| {
                let next = ring.iter().cycle().skip(1);
                ring.iter()
                    .zip(next)
                    .any(|(a, b)| metres_to_segment(to_metres(*a), to_metres(*b)) <= margin)
            })
        })
    }

    /// Returns whether the place is inside and the fence is valid at this time.
    #[must_use]
    pub fn contains(&self, ts: i64, [lng, lat]: [f64; 2]) -> bool {
        let [west, south, east, north] = self.bounds;
        // The place is inside the outline and outside of the holes if a ray to the east crosses an
        // odd number of edges of all rings.
        let is_inside = |rings: &Vec<Vec<[f64; 2]>>| {
            let crossings: usize = rings.iter().map(|ring| crossings(ring, [lng, lat])).sum();
            crossings % 2 == 1
        };
        self.is_valid(ts)
            && (west..=east).contains(&lng)
            && (south..=north).contains(&lat)
            && self.polygons.iter().any(is_inside)
    }
}

/// Returns the distance from the origin to a segment. Coordinates are in metres.
fn metres_to_segment([ax, ay]: [f64; 2], [bx, by]: [f64; 2]) -> f64 {
    let (dx, dy) = (bx - ax, by - ay);
    let squared_length = dx * dx + dy * dy;
    // Position of the nearest point of the segment: 0 is its first end, 1 its second.
    let share = if squared_length > 0.0 {
        (-(ax * dx + ay * dy) / squared_length).clamp(0.0, 1.0)
    } else {
        0.0
    };
    (ax + share * dx).hypot(ay + share * dy)
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
    fn margin_is_measured_from_the_border_at_any_latitude() {
        for lat in [0.0, 52.0, -70.0] {
            let square = vec![[10.0, lat], [10.1, lat], [10.1, lat + 0.1], [10.0, lat + 0.1]];
            let area = Area::new("square".to_owned(), 0, 10, vec![vec![square]]);
            let metre: f64 = 1.0 / METRES_PER_DEGREE;
            let east_of = |metres: f64| {
                let middle = lat + 0.05;
                [10.1 + metres * metre / middle.to_radians().cos(), middle]
            };
            let is_near = |place| area.is_near(0, place, 30.0);
            assert!(is_near(east_of(29.0)) && !is_near(east_of(31.0)), "{lat}");
            assert!(is_near(east_of(-29.0)) && !is_near(east_of(-31.0)), "{lat}");
            assert!(is_near([10.05, lat - 29.0 * metre]), "{lat}");
            // Beyond a corner, the distance is measured to the corner.
            let south = lat - 25.0 * metre;
            assert!(!is_near([10.1 + 25.0 * metre / south.to_radians().cos(), south]), "{lat}");
            assert!(!area.is_near(0, east_of(0.0), 0.0), "nothing is near without a margin");
            assert!(!area.is_near(10, east_of(29.0), 30.0), "the fence is no longer valid");
        }
    }

    #[test]
    fn margin_is_measured_across_the_antimeridian() {
        let ring =
            |west: f64, east: f64| vec![[west, -17.0], [east, -17.0], [east, -16.0], [west, -16.0]];
        let metre = 1.0 / METRES_PER_DEGREE / 16.5_f64.to_radians().cos();
        // 180 and -180 degrees are the same meridian.
        for (west, east, beyond) in [(179.0, 180.0, -180.0), (-180.0, -179.0, 180.0)] {
            let area = Area::new("a".to_owned(), 0, 10, vec![vec![ring(west, east)]]);
            let direction = -f64::signum(beyond);
            assert!(area.is_near(0, [beyond + direction * 29.0 * metre, -16.5], 30.0), "{west}");
            assert!(!area.is_near(0, [beyond + direction * 31.0 * metre, -16.5], 30.0), "{west}");
        }
    }

    #[test]
    fn open_ring_counts_as_closed() {
        let square = vec![[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]];
        let closed = [square.clone(), vec![square[0]]].concat();
        for ring in [square, closed] {
            let area = Area::new("square".to_owned(), 0, 1, vec![vec![ring]]);
            assert!(
                area.contains(0, [0.1, 1.0]) && area.contains(0, [1.9, 1.0]),
                "points must be inside even near the edge that an open ring omits"
            );
            assert!(!area.contains(0, [-0.1, 1.0]) && !area.contains(0, [2.1, 1.0]));
        }
        assert!(!Area::new("none".to_owned(), 0, 1, vec![vec![vec![]]]).contains(0, [0.0, 0.0]));
    }
}
