//! Computes the distance between two positions.

/// Mean radius of the earth, in metres.
const EARTH_M: f64 = 6_371_008.8;

/// Returns the metres between two positions, `[lat, lng]` in degrees, on a sphere of the earth's
/// mean radius.
#[must_use]
pub fn metres([lat_a, lng_a]: [f64; 2], [lat_b, lng_b]: [f64; 2]) -> f64 {
    let haversine = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
    let cosines = lat_a.to_radians().cos() * lat_b.to_radians().cos();
    let of_angle = haversine(lat_b - lat_a) + cosines * haversine(lng_b - lng_a);
    2.0 * EARTH_M * of_angle.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_on_a_sphere_even_across_the_antimeridian() {
        for (a, b, expected) in [
            ([0.0, 0.0], [0.0, 1.0], 111_195.08),
            ([0.0, 179.5], [0.0, -179.5], 111_195.08),
            ([60.0, 10.0], [60.0, 11.0], 55_597.0),
            ([90.0, 0.0], [-90.0, 77.0], 20_015_114.4),
            ([52.5, 13.4], [52.5, 13.4], 0.0),
        ] {
            let found = metres(a, b);
            assert!((found - expected).abs() < expected * 1e-5 + 1e-6, "{a:?} {b:?}: {found}");
        }
    }
}
