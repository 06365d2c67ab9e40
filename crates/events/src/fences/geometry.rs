//! Checks whether a polygon is valid. Computes in integers, so that rounding neither creates nor
//! hides a crossing.

use std::cmp::Ordering;

/// Longitude and latitude, in degrees.
pub(super) type Point = [f64; 2];
/// The outline, then holes; each ring's last point is its first.
pub(super) type Polygon = Vec<Vec<Point>>;

/// Longitude and latitude in half steps (see [`STEPS_PER_DEGREE`]), so that the midpoint of two
/// points is an integer too.
type Place = (i64, i64);

/// Points are rounded to steps of a billionth of a degree, which is 0.1 mm.
const STEPS_PER_DEGREE: f64 = 1e9;
/// Maximum number of points of a polygon. The border of a country has about 10,000.
const POINTS_MAX: usize = 200_000;

/// Checks a polygon. Returns its first error.
pub(super) fn check(polygon: &Polygon) -> Result<(), String> {
    let points: usize = polygon.iter().map(Vec::len).sum();
    if points > POINTS_MAX {
        return Err(format!("{points} points; the limit is {POINTS_MAX} per polygon"));
    }
    let ring = |(index, ring): (usize, &Vec<Point>)| {
        corners(ring).map_err(|fault| format!("ring {index}: {fault}"))
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

/// Returns the corners of a ring, each once. Consecutive equal points are one corner. Fails if the
/// ring has fewer than four points or three corners, a point outside of the valid degrees, or a
/// side across the antimeridian.
fn corners(ring: &[Point]) -> Result<Vec<Place>, String> {
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
                "{lng} is not a longitude: cut an area that crosses the antimeridian into two \
                 polygons there (RFC 7946, 3.1.9)"
            ));
        }
    }
    // Only a ring that covers the whole width of the map may have a side of more than 180 degrees.
    // In any other ring, such a side crosses the antimeridian.
    let jumps =
        |pair: &&[Point]| (pair[0][0] - pair[1][0]).abs() > 180.0 && !covers_whole_width(ring);
    if let Some(pair) = ring.windows(2).find(jumps) {
        return Err(format!(
            "crosses the antimeridian between {} and {}: cut it there into two polygons \
             (RFC 7946, 3.1.9)",
            format_point(pair[0]),
            format_point(pair[1])
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "180 degrees are far from the end of an i64"
    )]
    let place = |[lng, lat]: &Point| {
        (2 * (lng * STEPS_PER_DEGREE).round() as i64, 2 * (lat * STEPS_PER_DEGREE).round() as i64)
    };
    let mut corners: Vec<Place> = ring.iter().map(place).collect();
    corners.dedup();
    corners.pop();
    if corners.len() < 3 {
        return Err("has no area".to_owned());
    }
    Ok(corners)
}

/// Returns whether the ring covers the whole width of the map, along both edges.
fn covers_whole_width(ring: &[Point]) -> bool {
    let along = |edge: f64| ring.windows(2).any(|pair| pair[0][0] == edge && pair[1][0] == edge);
    along(-180.0) && along(180.0)
}

/// A side of a ring: the index of the ring, the index of the side in the ring, and the ends of the
/// side.
struct Side {
    ring: usize,
    index: usize,
    ends: (Place, Place),
}

impl Side {
    fn west(&self) -> i64 {
        let ((a, _), (b, _)) = self.ends;
        a.min(b)
    }

    fn east(&self) -> i64 {
        let ((a, _), (b, _)) = self.ends;
        a.max(b)
    }
}

/// Returns an error if a ring touches or crosses itself, or if two rings do more than touch. Sweeps
/// from west to east: sorts the sides by their west ends, and compares each side only with those
/// later sides whose west end is no farther east than the east end of this side.
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
    for (position, first) in sides.iter().enumerate() {
        for second in
            sides[position + 1..].iter().take_while(|second| second.west() <= first.east())
        {
            let meets = meet(first.ends, second.ends);
            let (start, _) = first.ends;
            if first.ring != second.ring {
                // Ring 0 is the outline.
                let (hole, outer) = (first.ring.max(second.ring), first.ring.min(second.ring));
                match meets {
                    Meet::Apart | Meet::Touch => {}
                    Meet::Cross => {
                        return Err(format!(
                            "ring {hole} crosses ring {outer} near {}",
                            format_place(start)
                        ));
                    }
                    Meet::Along => {
                        return Err(format!(
                            "ring {hole} runs along ring {outer} near {}",
                            format_place(start)
                        ));
                    }
                }
                continue;
            }
            let last_index = rings[first.ring].len() - 1;
            let distance = first.index.abs_diff(second.index);
            let fault = match meets {
                Meet::Apart => continue,
                // Neighbours share a corner.
                Meet::Touch if distance == 1 || distance == last_index => continue,
                Meet::Touch => "touches itself",
                Meet::Cross => "crosses itself",
                Meet::Along => "runs back along itself",
            };
            let corner =
                if meets == Meet::Along { shared_corner(first.ends, second.ends) } else { start };
            return Err(format!("ring {}: {fault} near {}", first.ring, format_place(corner)));
        }
    }
    Ok(())
}

/// Returns the ends of a side of a ring.
fn side(places: &[Place], index: usize) -> (Place, Place) {
    (places[index], places[(index + 1) % places.len()])
}

/// Returns the corner at which two neighbouring sides run back along each other.
fn shared_corner((a, b): (Place, Place), (c, d): (Place, Place)) -> Place {
    if b == c || b == d { b } else { a }
}

/// How two sides meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meet {
    Apart,
    /// The sides share one point, an end of at least one of them.
    Touch,
    Cross,
    /// The sides share more than one point.
    Along,
}

/// Returns how the side from `a` to `b` meets the side from `c` to `d`.
fn meet((a, b): (Place, Place), (c, d): (Place, Place)) -> Meet {
    let (side_of_c, side_of_d, side_of_a, side_of_b) =
        (turn(a, b, c), turn(a, b, d), turn(c, d, a), turn(c, d, b));
    if side_of_c == Ordering::Equal && side_of_d == Ordering::Equal {
        // Collinear: along a line, the points are in the order of their (lng, lat) pairs.
        let (from, to) = (a.min(b).max(c.min(d)), a.max(b).min(c.max(d)));
        return match from.cmp(&to) {
            Ordering::Less => Meet::Along,
            Ordering::Equal => Meet::Touch,
            Ordering::Greater => Meet::Apart,
        };
    }
    if side_of_c != side_of_d && side_of_a != side_of_b {
        let is_end_on_line =
            [side_of_c, side_of_d, side_of_a, side_of_b].contains(&Ordering::Equal);
        return if is_end_on_line { Meet::Touch } else { Meet::Cross };
    }
    Meet::Apart
}

/// Returns on which side of the line from `a` to `b` point `c` is: `Greater` is left, `Less` is
/// right, `Equal` is on the line.
fn turn((ax, ay): Place, (bx, by): Place, (cx, cy): Place) -> Ordering {
    let delta = |from: i64, to: i64| i128::from(to) - i128::from(from);
    (delta(ax, bx) * delta(ay, cy)).cmp(&(delta(ay, by) * delta(ax, cx)))
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
        let ((ax, ay), (bx, by), (x, y)) = (a, b, place);
        let side_of_line = if ay <= by { turn(a, b, place) } else { turn(b, a, place) };
        let is_in_box =
            (ax.min(bx)..=ax.max(bx)).contains(&x) && (ay.min(by)..=ay.max(by)).contains(&y);
        if side_of_line == Ordering::Equal && is_in_box {
            return Location::On;
        }
        // A side includes its lower end, but not its upper end. So a corner on the ray counts once
        // where the ring crosses the ray, and twice or not at all where the ring only touches it.
        let meets_ray = (ay.min(by)..ay.max(by)).contains(&y);
        is_inside ^= meets_ray && side_of_line == Ordering::Greater;
    }
    if is_inside { Location::Inside } else { Location::Outside }
}

/// Returns the corners of a ring and the midpoint of each side. If every corner of a hole lies on
/// another ring, the midpoints show on which side of that ring the hole is.
fn samples(ring: &[Place]) -> impl Iterator<Item = Place> {
    (0..ring.len()).flat_map(|index| {
        let (a, b) = side(ring, index);
        let ((ax, ay), (bx, by)) = (a, b);
        [a, (i64::midpoint(ax, bx), i64::midpoint(ay, by))]
    })
}

fn format_point([lng, lat]: Point) -> String {
    format!("{lng}, {lat}")
}

#[expect(clippy::cast_precision_loss, reason = "only shown to people")]
fn format_place((lng, lat): Place) -> String {
    format_point([lng as f64 / STEPS_PER_DEGREE / 2.0, lat as f64 / STEPS_PER_DEGREE / 2.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polygon_with_too_many_points_is_refused() {
        let fault = |points| check(&vec![vec![[1.0, 2.0]; points]]).unwrap_err();
        assert!(!fault(POINTS_MAX).contains("the limit is"), "{}", fault(POINTS_MAX));
        assert_eq!(fault(POINTS_MAX + 1), "200001 points; the limit is 200000 per polygon");
    }
}
