//! Tests how much memory a driver needs. The file has one test, because the memory of the whole
//! process is measured.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper may panic, which fails its test")]

use milepost_events::watch::{Area, Fix, Rules, Watch};

const BEGAN: i64 = 1_760_000_000_000;
const DRIVERS: usize = 20_000;

/// Returns the resident memory of this process, in KiB.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap()
}

/// Returns a watch of [`DRIVERS`] drivers that have each been in this many fences.
fn drivers_in(fences: i32) -> Watch {
    let area = |n: i32| {
        let (west, east) = (f64::from(n) * 0.01, f64::from(n) * 0.01 + 0.009);
        let ring = vec![[west, 0.0], [east, 0.0], [east, 0.01], [west, 0.01]];
        Area::new(format!("customer number {n}"), 0, i64::MAX, vec![vec![ring]])
    };
    let areas = (0..fences).map(area).collect();
    let mut watch = Watch::new(Rules { areas, ..Rules::default() });
    let mut out = Vec::new();
    for driver in 0..DRIVERS {
        for n in 0..=fences {
            let ts = BEGAN + i64::from(n) * 600_000;
            let fix = Fix {
                driver_id: format!("driver-{driver:08}"),
                ts,
                seq: 0,
                lat: 0.005,
                lng: f64::from(n) * 0.01 + 0.004,
                speed: None,
                acc: None,
                inserted_at: ts,
            };
            watch.handle_fix(fix, &mut out);
            out.clear();
        }
    }
    watch
}

#[test]
fn driver_needs_little_memory_even_after_visits_of_fences() {
    let mut watches = Vec::new();
    for (fences, bytes_max) in [(0, 800), (1, 950), (12, 2_500)] {
        let before = resident_kib();
        watches.push(drivers_in(fences));
        let bytes = (resident_kib() - before) * 1_024 / DRIVERS;
        assert!(bytes <= bytes_max, "{bytes} bytes for a driver who was in {fences} fences");
    }
}
