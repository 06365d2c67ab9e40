//! Checks whether a polygon is valid. Computes in integers, so that rounding neither creates nor
//! hides a crossing.

use std::cmp::Ordering;

/// Longitude and latitude, in degrees.
pub(super) type Point = [f64; 2];
/// The outline, then holes; each ring's last point is its first.
pub(super) type Polygon = Vec<Vec<Point>>;

/// Longitude and latitude in half billionths of a degree, so that the midpoint of two points is an
/// integer too. 1e-9 degrees are 0.1 mm.
type Place = (i64, i64);

const BILLION: f64 = 1e9;
/// Maximum number of points of a polygon. The border of a country has about 10,000.
const POINTS_MAX: usize = 200_000;

/// Checks a polygon. Returns its first error.
pub(super) fn check(polygon: &Polygon) -> Result<(), String> {
    let points: usize = polygon.iter().map(Vec::len).sum();
    if points > POINTS_MAX {
        return Err(format!("{points} points; the limit is {POINTS_MAX} per polygon"));
    }
    let ring = |(index, ring): (usize, &Vec<Point>)| {
        places(ring).map_err(|fault| format!("ring {index}: {fault}"))
    };
    let rings = polygon.iter().enumerate().map(ring).collect::<Result<Vec<_>, _>>()?;
    check_sides(&rings)?;
    for (hole, ring) in rings.iter().enumerate().skip(1) {
        if samples(ring).any(|place| locate(place, &rings[0]) == Location::Outside) {
            return Err(format!("ring {hole} is a hole outside of the outline"));
        }
        for (other, outer) in rings.iter().enumerate().skip(1) {
            if other != hole && samples(ring).any(|place| locate(place, outer) == Location::Inside)
            {
                return Err(format!("ring {hole} is a hole in the hole of ring {other}"));
            }
        }
    }
    Ok(())
}

/// Returns the corners of a ring, each once. Consecutive equal points are one corner.
fn places(ring: &[Point]) -> Result<Vec<Place>, String> {
    if ring.len() < 4 {
        return Err(format!(
            "{} points; a ring has at least 4, the last equal to the first",
            ring.len()
        ));
    }
    assert_eq!(ring.first(), ring.last(), "`closed` repeats the first point at the end");
    for [lng, lat] in ring {
        if !(-90.0..=90.0).contains(lat) {
            let swapped = if (-90.0..=90.0).contains(lng) {
                ": are the two swapped? GeoJSON uses [lng, lat]"
            } else {
                ""
            };
            return Err(format!("{lat} is not a latitude{swapped}"));
        }
        if !(-180.0..=180.0).contains(lng) {
            return Err(format!(
                "{lng} is not a longitude: cut an area that crosses the antimeridian into two polygons there (RFC 7946, 3.1.9)"
            ));
        }
    }
    // Only a ring that covers the whole width of the map may have a side of more than 180 degrees.
    // In any other ring, such a side means that it crosses the antimeridian.
    let jumps =
        |pair: &&[Point]| (pair[0][0] - pair[1][0]).abs() > 180.0 && !covers_whole_width(ring);
    if let Some(pair) = ring.windows(2).find(jumps) {
        return Err(format!(
            "crosses the antimeridian between {} and {}: cut it there into two polygons (RFC 7946, 3.1.9)",
            format_point(pair[0]),
            format_point(pair[1])
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "180 degrees are far from the end of an i64"
    )]
    let place = |[lng, lat]: &Point| {
        (2 * (lng * BILLION).round() as i64, 2 * (lat * BILLION).round() as i64)
    };
    let mut places: Vec<Place> = ring.iter().map(place).collect();
    places.dedup();
    places.pop();
    if places.len() < 3 {
        return Err("has no area".to_owned());
    }
    Ok(places)
}

/// Returns whether the ring covers the whole width of the map, along both edges.
fn covers_whole_width(ring: &[Point]) -> bool {
    let along = |edge: f64| ring.windows(2).any(|pair| pair[0][0] == edge && pair[1][0] == edge);
    along(-180.0) && along(180.0)
}

/// A side of a ring: the index of the ring, the index of the side in the ring, and its ends.
struct Side {
    ring: usize,
    index: usize,
    ends: (Place, Place),
}

impl Side {
    fn west(&self) -> i64 {
        self.ends.0.0.min(self.ends.1.0)
    }

    fn east(&self) -> i64 {
        self.ends.0.0.max(self.ends.1.0)
    }
}

/// Returns an error if two sides of the rings meet in a way that is not allowed. Sweeps from west
/// to east, and compares each side only with those that begin before it ends.
fn check_sides(rings: &[Vec<Place>]) -> Result<(), String> {
    let mut sides: Vec<Side> = Vec::new();
    for (ring, places) in rings.iter().enumerate() {
        sides.extend((0..places.len()).map(|index| Side {
            ring,
            index,
            ends: side(places, index),
        }));
    }
    sides.sort_by_key(Side::west);
    for (number, one) in sides.iter().enumerate() {
        for other in sides[number + 1..].iter().take_while(|other| other.west() <= one.east()) {
            let meets = meet(one.ends, other.ends);
            let near = || format_place(one.ends.0);
            if one.ring != other.ring {
                let (hole, outer) = (one.ring.max(other.ring), one.ring.min(other.ring));
                match meets {
                    Meet::Apart | Meet::Touch => {}
                    Meet::Cross => {
                        return Err(format!("ring {hole} crosses ring {outer} near {}", near()));
                    }
                    Meet::Along => {
                        return Err(format!("ring {hole} runs along ring {outer} near {}", near()));
                    }
                }
                continue;
            }
            let last = rings[one.ring].len() - 1;
            let apart = one.index.abs_diff(other.index);
            let fault = match meets {
                Meet::Apart => continue,
                Meet::Touch if apart == 1 || apart == last => continue, // neighbours share a corner
                Meet::Touch => "touches itself",
                Meet::Cross => "crosses itself",
                Meet::Along => "runs back along itself",
            };
            let corner =
                if meets == Meet::Along { shared_corner(one.ends, other.ends) } else { one.ends.0 };
            return Err(format!("ring {}: {fault} near {}", one.ring, format_place(corner)));
        }
    }
    Ok(())
}

fn side(places: &[Place], index: usize) -> (Place, Place) {
    (places[index], places[(index + 1) % places.len()])
}

/// Returns the corner at which two neighbouring sides run back along each other.
fn shared_corner((a, b): (Place, Place), (c, d): (Place, Place)) -> Place {
    if b == c || b == d { b } else { a }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meet {
    Apart,
    /// The sides share one point, an end of at least one of them.
    Touch,
    Cross,
    /// The sides share more than one point.
    Along,
}

fn meet((a, b): (Place, Place), (c, d): (Place, Place)) -> Meet {
    let (side_of_c, side_of_d, side_of_a, side_of_b) =
        (turn(a, b, c), turn(a, b, d), turn(c, d, a), turn(c, d, b));
    if side_of_c == Ordering::Equal && side_of_d == Ordering::Equal {
        // Collinear: points of one line have the same order as their (lng, lat) pairs.
        let (from, to) = (a.min(b).max(c.min(d)), a.max(b).min(c.max(d)));
        return match from.cmp(&to) {
            Ordering::Less => Meet::Along,
            Ordering::Equal => Meet::Touch,
            Ordering::Greater => Meet::Apart,
        };
    }
    if side_of_c != side_of_d && side_of_a != side_of_b {
        let is_end = [side_of_c, side_of_d, side_of_a, side_of_b].contains(&Ordering::Equal);
        return if is_end { Meet::Touch } else { Meet::Cross };
    }
    Meet::Apart
}

/// Returns on which side of the line from `a` to `b` point `c` is: `Greater` is left, `Less` is
/// right, `Equal` is on the line.
fn turn(a: Place, b: Place, c: Place) -> Ordering {
    let delta = |from: i64, to: i64| i128::from(to) - i128::from(from);
    (delta(a.0, b.0) * delta(a.1, c.1)).cmp(&(delta(a.1, b.1) * delta(a.0, c.0)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location {
    Inside,
    On,
    Outside,
}

/// Locates a place by counting the sides of the ring that a ray to the east crosses.
fn locate(place: Place, ring: &[Place]) -> Location {
    let mut is_inside = false;
    for index in 0..ring.len() {
        let (a, b) = side(ring, index);
        let (low, high) = if a.1 <= b.1 { (a, b) } else { (b, a) };
        let side_of_line = turn(low, high, place);
        let in_box =
            (a.0.min(b.0)..=a.0.max(b.0)).contains(&place.0) && (low.1..=high.1).contains(&place.1);
        if side_of_line == Ordering::Equal && in_box {
            return Location::On;
        }
        is_inside ^= low.1 <= place.1 && place.1 < high.1 && side_of_line == Ordering::Greater;
    }
    if is_inside { Location::Inside } else { Location::Outside }
}

/// Returns the corners of a ring and the midpoint of each side.
fn samples(ring: &[Place]) -> impl Iterator<Item = Place> {
    (0..ring.len()).flat_map(|index| {
        let (a, b) = side(ring, index);
        [a, (i64::midpoint(a.0, b.0), i64::midpoint(a.1, b.1))]
    })
}

fn format_point([lng, lat]: Point) -> String {
    format!("{lng}, {lat}")
}

#[expect(clippy::cast_precision_loss, reason = "only shown to people")]
fn format_place((lng, lat): Place) -> String {
    format_point([lng as f64 / BILLION / 2.0, lat as f64 / BILLION / 2.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polygon_with_too_many_points_is_refused() {
        let refused = |points| check(&vec![vec![[1.0, 2.0]; points]]).unwrap_err();
        assert!(!refused(POINTS_MAX).contains("the limit is"), "{}", refused(POINTS_MAX));
        assert_eq!(refused(POINTS_MAX + 1), "200001 points; the limit is 200000 per polygon");
    }
}
