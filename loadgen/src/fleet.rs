//! Simulated drivers that move like real ones: they choose a target speed, turn, accelerate and
//! stop, and their receivers are noisy.
//!
//! The state of a driver takes 48 bytes, so ten million drivers fit into half a GiB. The same seed
//! gives the same tracks if the fixes are requested at the same times and in the same order.

use std::fmt::Write as _;
use std::ops::Range;

/// Accuracy of a live fix, in metres.
pub const LIVE_ACC_M: f32 = 5.0;
/// Accuracy of a fix that the device buffered or sent late, in metres. Such fixes do not count for
/// freshness.
pub(crate) const BUFFERED_ACC_M: f32 = 50.0;

const METRES_PER_DEGREE: f64 = 111_320.0;

#[derive(Debug, Clone)]
struct Driver {
    lat: f64,
    lng: f64,
    heading_deg: f32,
    speed_mps: f32,
    /// Target speed; 0 while standing.
    cruise_mps: f32,
    /// Seconds until the driver chooses a new target speed, and perhaps turns.
    decides_in_s: f32,
    seq: u32,
    ts_ms: i64,
}

/// The drivers of one connection, named `sim-{run}-{n}`.
#[derive(Debug, Default)]
pub struct Fleet {
    run: String,
    /// Number of the first driver.
    first: u32,
    drivers: Vec<Driver>,
    rng: fastrand::Rng,
}

/// One point, as a device would send it.
#[derive(Debug, Clone, PartialEq)]
pub struct Fix {
    /// Degrees north.
    pub lat: f64,
    /// Degrees east.
    pub lng: f64,
    /// Metres per second.
    pub speed_mps: f32,
    /// Degrees clockwise from north.
    pub heading_deg: f32,
    /// Metres.
    pub acc_m: f32,
    /// Milliseconds since the epoch.
    pub ts_ms: i64,
    /// Sequence number of the fix within its driver: 1, 2, 3, …
    pub seq: u32,
}

impl Fix {
    /// Appends the fix as a JSON object.
    pub fn write_json(&self, out: &mut String) {
        let Self { lat, lng, speed_mps, heading_deg, acc_m, ts_ms, seq } = self;
        write!(
            out,
            r#"{{"lat":{lat:.7},"lng":{lng:.7},"speed":{speed_mps:.1},"heading":{heading_deg:.0},"acc":{acc_m:.0},"ts":{ts_ms},"seq":{seq}}}"#
        )
        .expect("writing to a String");
    }
}

impl Fleet {
    /// Places the drivers in a city, some standing and some driving.
    #[must_use]
    pub fn new(run: &str, numbers: Range<u32>, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(u64::from(numbers.start)));
        let first = numbers.start;
        let drivers = numbers
            .map(|_| Driver {
                lat: 25.76 + (rng.f64() - 0.5) * 0.12,
                lng: -80.26 + (rng.f64() - 0.5) * 0.12,
                heading_deg: 90.0 * f32::from(rng.u8(..4)),
                speed_mps: rng.f32() * 15.0,
                cruise_mps: rng.f32() * 25.0,
                decides_in_s: rng.f32() * 30.0,
                seq: 0,
                ts_ms: 0,
            })
            .collect();
        Self { run: run.to_owned(), first, drivers, rng }
    }

    /// Returns the numbers of the drivers.
    #[must_use]
    pub fn numbers(&self) -> Range<u32> {
        self.first
            ..self.first + u32::try_from(self.drivers.len()).expect("made from a range of u32")
    }

    /// Returns the id of driver `n`.
    #[must_use]
    pub fn driver_id(&self, n: u32) -> String {
        driver_id(&self.run, n)
    }

    /// Returns the highest `seq` of driver `n` so far.
    #[must_use]
    pub fn last_seq(&self, n: u32) -> u32 {
        self.drivers[(n - self.first) as usize].seq
    }

    /// Returns the time of driver `n`'s last fix; 0 before the first.
    pub(crate) fn last_ts_ms(&self, n: u32) -> i64 {
        self.drivers[(n - self.first) as usize].ts_ms
    }

    /// Moves driver `n` until `now_ms`, and returns a fix with the accuracy `acc_m`. The `ts_ms`
    /// and `seq` of a driver rise with every fix.
    pub fn fix(&mut self, n: u32, now_ms: i64, acc_m: f32) -> Fix {
        let rng = &mut self.rng;
        let driver = &mut self.drivers[(n - self.first) as usize];
        let elapsed_s =
            if driver.ts_ms == 0 { 0.0 } else { seconds(now_ms - driver.ts_ms).clamp(0.0, 60.0) };
        driver.decides_in_s -= elapsed_s;
        if driver.decides_in_s <= 0.0 {
            driver.decides_in_s = 5.0 + rng.f32() * 40.0;
            driver.cruise_mps = if rng.f32() < 0.25 { 0.0 } else { 4.0 + rng.f32() * 26.0 };
            driver.heading_deg =
                (driver.heading_deg + [-90.0, 0.0, 90.0][rng.usize(..3)]).rem_euclid(360.0);
        }
        let change =
            (driver.cruise_mps - driver.speed_mps).clamp(-4.0 * elapsed_s, 2.0 * elapsed_s);
        driver.speed_mps = (driver.speed_mps + change).max(0.0);
        driver.heading_deg = (driver.heading_deg + (rng.f32() - 0.5) * elapsed_s).rem_euclid(360.0);

        let metres = f64::from(driver.speed_mps * elapsed_s);
        let heading = f64::from(driver.heading_deg).to_radians();
        driver.lat = (driver.lat + metres * heading.cos() / METRES_PER_DEGREE).clamp(-85.0, 85.0);
        driver.lng += metres * heading.sin() / (METRES_PER_DEGREE * driver.lat.to_radians().cos());
        if driver.lng.abs() > 180.0 {
            driver.lng -= 360.0 * driver.lng.signum();
        }
        driver.seq += 1;
        driver.ts_ms = now_ms.max(driver.ts_ms + 1);

        let noise_deg = |rng: &mut fastrand::Rng| {
            (rng.f64() - 0.5) * f64::from(acc_m) * 0.4 / METRES_PER_DEGREE
        };
        Fix {
            lat: driver.lat + noise_deg(rng),
            lng: driver.lng + noise_deg(rng),
            speed_mps: driver.speed_mps,
            heading_deg: driver.heading_deg,
            acc_m,
            ts_ms: driver.ts_ms,
            seq: driver.seq,
        }
    }
}

/// Returns `sim-{run}-{n}`.
#[must_use]
pub fn driver_id(run: &str, n: u32) -> String {
    format!("sim-{run}-{n}")
}

#[expect(clippy::cast_precision_loss, reason = "clamped to a minute by the caller")]
fn seconds(ms: i64) -> f32 {
    ms as f32 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_are_continuous_with_rising_times_and_numbers() {
        let mut fleet = Fleet::new("t", 0..3, 7);
        for n in 0..3 {
            let mut last = fleet.fix(n, 1_000, LIVE_ACC_M);
            for step in 2..600 {
                // Request two fixes at the same time, as in a burst: `ts_ms` must still rise.
                let fix = fleet.fix(n, 1_000 * (step / 2), LIVE_ACC_M);
                assert!(fix.ts_ms > last.ts_ms && fix.seq == last.seq + 1);
                let metres = (fix.lat - last.lat).hypot(fix.lng - last.lng) * METRES_PER_DEGREE;
                assert!(metres < 45.0, "{metres} m in a second");
                assert!(
                    (0.0..=200.0).contains(&fix.speed_mps)
                        && (0.0..360.0).contains(&fix.heading_deg)
                );
                last = fix;
            }
        }
    }

    #[test]
    fn same_seed_gives_the_same_track() {
        let track = || {
            let mut fleet = Fleet::new("t", 0..2, 42);
            (0..100).map(|s| fleet.fix(1, s * 500, LIVE_ACC_M)).collect::<Vec<_>>()
        };
        assert_eq!(track(), track());
    }

    #[test]
    fn ten_million_drivers_fit_into_a_gibibyte() {
        assert!(size_of::<Driver>() * 10_000_000 < 1 << 30);
    }
}
