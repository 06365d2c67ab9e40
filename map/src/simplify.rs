//! Simplifies a track: a straight movement at constant speed needs only its two end points.

/// Points per block. The end points of a block are always kept, so the quadratic worst case is
/// limited to a block.
const BLOCK_POINTS: usize = 2_048;
/// Metres per degree of latitude.
const METRES_PER_DEGREE: f64 = 111_195.0;

/// A point of a track: milliseconds and degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub ms: i64,
    pub lat: f64,
    pub lng: f64,
}

/// Returns the indexes of the points to keep. At any time, a driver that moves at constant speed
/// between these points is at most `metres` away from the original track. So stops and speeds
/// survive. The algorithm is TD-TR (Meratnia and de By): Douglas-Peucker with time.
#[must_use]
pub fn simplify(points: &[Point], metres: f64) -> Vec<usize> {
    if metres <= 0.0 || points.len() < 3 {
        return (0..points.len()).collect();
    }
    let last = points.len() - 1;
    let mut is_kept = vec![false; points.len()];
    let ends = (0..last).step_by(BLOCK_POINTS).chain([last]);
    for end in ends {
        is_kept[end] = true;
    }
    let begins = (0..last).step_by(BLOCK_POINTS);
    let mut unchecked: Vec<(usize, usize)> =
        begins.map(|begin| (begin, (begin + BLOCK_POINTS).min(last))).collect();
    while let Some((from, to)) = unchecked.pop() {
        let errors =
            (from + 1..to).map(|index| (index, error_m(points[from], points[to], points[index])));
        let Some((worst, error)) = errors.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        if error > metres {
            is_kept[worst] = true;
            unchecked.extend([(from, worst), (worst, to)]);
        }
    }
    (0..points.len()).filter(|index| is_kept[*index]).collect()
}

/// Returns the degrees from one longitude eastwards to another, the shorter way round: -180 to 180.
pub fn eastward(from: f64, to: f64) -> f64 {
    (to - from + 540.0).rem_euclid(360.0) - 180.0
}

/// Returns the distance in metres between `at` and a movement at constant speed from `from` to
/// `to`, at the time of `at`.
fn error_m(from: Point, to: Point, at: Point) -> f64 {
    let share =
        if to.ms > from.ms { (at.ms - from.ms) as f64 / (to.ms - from.ms) as f64 } else { 0.0 };
    let east = |lng: f64| eastward(from.lng, lng);
    let lat_m = (at.lat - from.lat - share * (to.lat - from.lat)) * METRES_PER_DEGREE;
    let lng_m =
        (east(at.lng) - share * east(to.lng)) * METRES_PER_DEGREE * from.lat.to_radians().cos();
    lat_m.hypot(lng_m)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(ms: i64, lat: f64, lng: f64) -> Point {
        Point { ms, lat, lng }
    }

    #[test]
    fn steady_motion_needs_two_points_and_a_stop_is_kept() {
        let even: Vec<Point> =
            (0..100).map(|n| point(n * 1_000, 50.0 + n as f64 * 1e-4, 8.0)).collect();
        assert_eq!(simplify(&even, 1.0), [0, 99]);
        let stop: Vec<Point> =
            (0..100).map(|n| point(n * 1_000, 50.0 + n.clamp(30, 60) as f64 * 1e-4, 8.0)).collect();
        assert_eq!(simplify(&stop, 1.0), [0, 30, 60, 99]);
        assert_eq!(simplify(&even, 0.0).len(), 100);
    }

    #[test]
    fn track_across_the_antimeridian_takes_the_short_way() {
        let over: Vec<Point> = (0..50)
            .map(|n| point(n * 1_000, 0.0, (n as f64 * 0.01 + 359.8).rem_euclid(360.0) - 180.0))
            .collect();
        assert_eq!(simplify(&over, 1.0), [0, 49]);
    }

    proptest! {
        #![proptest_config(crate::cases::cases(256))]

        #[test]
        fn simplified_track_stays_within_the_tolerance(
            steps in proptest::collection::vec(
                (1_i64..5_000, -0.001_f64..0.001, -0.001_f64..0.001),
                1..300,
            ),
            metres in 1.0_f64..100.0,
        ) {
            let (mut ms, mut lat, mut lng) = (0, 50.0, 8.0);
            let points: Vec<Point> = steps.into_iter().map(|(step, north, east)| {
                (ms, lat, lng) = (ms + step, lat + north, lng + east);
                point(ms, lat, lng)
            }).collect();
            let kept = simplify(&points, metres);
            prop_assert_eq!((kept[0], kept[kept.len() - 1]), (0, points.len() - 1));
            for (from, to) in kept.iter().copied().zip(kept.iter().copied().skip(1)) {
                for index in from..to {
                    prop_assert!(error_m(points[from], points[to], points[index]) <= metres);
                }
            }
        }
    }
}
