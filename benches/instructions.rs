//! Instructions a message, counted by valgrind's callgrind: the repeatable figure, on any machine under any load.
//! From the PUBLISH to the encoded insert and the acknowledgement; sockets and the insert itself are not in it.

#[expect(unreachable_pub, reason = "a benchmark's rooms have no outside")]
mod work;

use std::hint::black_box;
use std::process::Command;

use milepost::pipeline::encode;

const COUNT: &str = "MILEPOST_BENCH_MESSAGES";
/// What both runs do alike is no part of the difference.
const RUNS: [u64; 2] = [20_000, 60_000];

fn main() {
    match std::env::var(COUNT) {
        Ok(count) => work(count.parse().expect("a number of messages")),
        Err(_) => count(),
    }
}

fn work(count: usize) {
    let messages = work::messages(5_000);
    let mut live = work::Live::new();
    for message in messages.iter().cycle().take(count) {
        if let Some(batch) = live.publish(message) {
            let id = batch.id;
            black_box(encode::encode(batch, "fleet"));
            live.durable(id);
        }
    }
}

#[expect(clippy::print_stdout, reason = "the benchmark's result")]
fn count() {
    let instructions = |messages: u64| -> u64 {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().expect("this program has a path"))
            .env(COUNT, messages.to_string())
            .output()
            .expect("valgrind is installed (Debian: valgrind)");
        let text = String::from_utf8_lossy(&output.stderr);
        let collected =
            text.lines().find_map(|line| line.split_once("Collected : ")).expect("valgrind tells");
        collected.1.trim().parse().expect("a number of instructions")
    };
    let [few, many] = RUNS.map(instructions);
    println!("{} instructions a message (callgrind)", (many - few) / (RUNS[1] - RUNS[0]));
}
