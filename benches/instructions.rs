//! Counts instructions per point with valgrind's callgrind: a figure that other load on the machine
//! does not change. The figure covers the path from PUBLISH to the encoded insert and to the
//! acknowledgement, without sockets and without the insert itself.
//!
//! Fails if a figure is more than [`TOLERANCE_PERCENT`] above the figure in [`EXPECTED`]. A commit
//! that makes a message more expensive must also raise the figure in [`EXPECTED`].

#[expect(unreachable_pub, reason = "a benchmark's modules are private to it")]
mod work;

use std::hint::black_box;
use std::process::Command;

use loadgen::format::Format;
use milepost_core::encode;

/// Environment variable with the work of a run: the number of points, a space, and the name of one
/// of the workloads in [`EXPECTED`].
const WORK: &str = "MILEPOST_BENCH_WORK";
/// Number of points of the two runs. Both runs have the same cost of starting, so the difference of
/// their counts excludes that cost.
const RUN_POINTS: [u64; 2] = [20_000, 60_000];
/// Name of the workload whose messages are arrays.
const ARRAYS: &str = "milepost (arrays of 100, per point)";
const POINTS_PER_ARRAY: usize = 100;
/// The workloads with the expected instructions per point, on x86-64. The first two workloads are
/// milepost's own format, with one point per message and with arrays. Then follows each format as
/// the devices of a fleet write it, and finally one format with a kept field.
const EXPECTED: [(&str, u64); 13] = [
    ("milepost", 3_196),
    (ARRAYS, 1_928),
    ("milepost (fleet)", 2_995),
    ("owntracks (fleet)", 4_367),
    ("traccar (fleet)", 6_899),
    ("traccar-client (fleet)", 7_874),
    ("teltonika (fleet)", 5_502),
    ("thingsboard (fleet)", 4_036),
    ("geojson (fleet)", 5_331),
    ("nmea (fleet)", 7_215),
    ("w3c (fleet)", 4_547),
    ("mapped (fleet)", 9_672),
    ("owntracks (fleet, keep = [\"batt\"])", 5_117),
];
/// Largest tolerated excess over an expected figure.
const TOLERANCE_PERCENT: u64 = 2;

fn main() {
    match std::env::var(WORK) {
        Ok(text) => {
            let (points, name) = text.split_once(' ').expect("a number and a name");
            run_workload(points.parse().expect("a number of points"), name);
        }
        Err(_) => count_instructions(),
    }
}

/// Runs a workload of this many points. This is the process whose instructions valgrind counts.
fn run_workload(points: usize, name: &str) {
    let format =
        Format::ALL.into_iter().find(|format| name.starts_with(&format!("{} ", format.name())));
    let keep = if name.contains("keep") { "keep = [\"batt\"]\n" } else { "" };
    let (messages, decoder) = match format {
        Some(format) => (work::messages_in(format, 5_000), work::decoder_for(format, keep)),
        None => (work::messages(5_000), work::decoder()),
    };
    let (messages, count) = match name {
        ARRAYS => (work::arrays(&messages, POINTS_PER_ARRAY), points / POINTS_PER_ARRAY),
        _ => (messages, points),
    };
    let mut consumer = work::LiveConsumer::new(decoder);
    for message in messages.iter().cycle().take(count) {
        if let Some(batch) = consumer.publish(message) {
            let id = batch.id;
            assert_eq!(batch.rejects.len(), 0, "{:?}", batch.rejects.first());
            black_box(encode::encode(batch, "fleet"));
            consumer.confirm_batch(id);
        }
    }
}

/// Counts and prints the instructions of each workload, or only of the workload that
/// `MILEPOST_BENCH_ONLY` names.
///
/// # Panics
/// A figure is too high, or valgrind fails.
#[expect(clippy::print_stdout, reason = "the benchmark's result")]
fn count_instructions() {
    let instructions = |points: u64, name: &str| -> u64 {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().expect("this program has a path"))
            .env(WORK, format!("{points} {name}"))
            .output()
            .expect("valgrind is installed (Debian: valgrind)");
        let text = String::from_utf8_lossy(&output.stderr);
        let (_, collected) = text
            .lines()
            .find_map(|line| line.split_once("Collected : "))
            .expect("valgrind reports a count");
        collected.trim().parse().expect("a number of instructions")
    };
    for format in Format::ALL {
        let workload = format!("{} (fleet)", format.name());
        assert!(EXPECTED.iter().any(|(name, _)| *name == workload), "EXPECTED lacks {workload}");
    }
    let mut first = None;
    let mut is_above = false;
    let only = std::env::var("MILEPOST_BENCH_ONLY").ok();
    for (name, expected) in EXPECTED {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let [short_run, long_run] = RUN_POINTS.map(|points| instructions(points, name));
        let per_point = (long_run - short_run) / (RUN_POINTS[1] - RUN_POINTS[0]);
        let ratio = per_point as f64 / *first.get_or_insert(per_point) as f64;
        println!("{per_point} instructions a message (callgrind), {ratio:.2} times: {name}");
        if per_point * 100 > expected * (100 + TOLERANCE_PERCENT) {
            println!(
                "  {name}: more than {TOLERANCE_PERCENT} % above {expected}, the value expected in \
                 benches/instructions.rs"
            );
            is_above = true;
        }
    }
    assert!(!is_above, "a message costs more instructions than expected");
}
