//! Tests of the benchmark itself: its report must show the faults of a consumer.

use std::process::Command;

use anyhow::Result;
use serde_json::Value;

const COST: &str = "--only sink-10k-qos0 --seconds 2 --repetitions 1";
const KILL: &str = "--only kill-9 --seconds 8";
/// Maximum number of runs of a floor that acknowledges before the insert. In at least one of the
/// runs, a kill must lose acknowledged messages.
const RUNS_MAX: u32 = 4;

/// Runs one step of the floor with these arguments. Returns the step's figures and the Markdown
/// report.
fn run_step(step: &str, arguments: &[&str]) -> Result<(Value, String)> {
    let results = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(format!("bench --consumer floor --tries 5 --busy {step}").split(' '));
    // The floor is this binary. No milepost runs in this step, but the file must exist.
    command.args(["--milepost", env!("CARGO_BIN_EXE_lab"), "--results"]).arg(results.path());
    command.args(arguments.iter().map(|argument| format!("--floor-argument={argument}")));
    let output = command.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(results.path().join("latest.json"))?)?;
    let markdown = std::fs::read_to_string(results.path().join("latest.md"))?;
    assert!(markdown.contains("| floor |"), "{markdown}");
    Ok((report["trials"][0].clone(), markdown))
}

fn cost(arguments: &[&str]) -> Result<Value> {
    Ok(run_step(COST, arguments)?.0)
}

#[test]
fn report_shows_drops_and_duplicates() {
    let honest = cost(&[]).unwrap();
    assert_eq!(
        (&honest["messages"], &honest["lost"], &honest["duplicates"]),
        (&40_000.into(), &0.into(), &0.into())
    );
    assert!(
        honest["cpu_us_per_message"].as_f64().unwrap() > 0.0
            && honest["rss_peak_mib"].as_f64().unwrap() > 1.0,
        "{honest}"
    );
    assert!(honest["flush_ms"].is_array(), "{honest}");

    let drops = cost(&["--drop-every", "1000"]).unwrap();
    assert_eq!((&drops["lost"], &drops["duplicates"]), (&40.into(), &0.into()));
    let duplicates = cost(&["--duplicate-every", "1000"]).unwrap();
    assert_eq!((&duplicates["lost"], &duplicates["duplicates"]), (&0.into(), &40.into()));
}

#[test]
#[ignore = "measures CPU, so it needs an idle machine: `make faults` runs it"]
fn report_shows_wasted_cpu() {
    let cpu = |arguments: &[&str]| cost(arguments).unwrap()["cpu_us_per_message"].as_f64().unwrap();
    let burns = || cpu(&["--burn-us", "20"]) - cpu(&[]);
    assert!(
        (0..3).any(|_| (14.0..=28.0).contains(&burns())),
        "the floor burnt 20 µs a message, and the report does not show it"
    );
}

#[test]
fn busy_machine_is_refused() {
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
    let refused = lab.args(["bench", "--only", "sink-10k-qos0", "--consumer", "floor"]).output();
    busy.kill().unwrap();
    busy.wait().unwrap();
    let printed = String::from_utf8(refused.unwrap().stderr).unwrap();
    assert!(printed.contains("cores of this machine") && printed.contains("--busy"), "{printed}");
}

/// A consumer that keeps its session and acknowledges after its insert must pass. If the consumer
/// acknowledges before the insert, the report must show lost data. On a busy machine the broker may
/// not have read those acknowledgements when the kill resets the socket. Then the broker redelivers
/// the messages, and nothing is lost.
#[test]
#[ignore = "depends on the moment of a kill, so it needs an idle machine: `make faults` runs it"]
fn acknowledgement_before_the_insert_is_found() {
    let session = ["--session", "kept"];
    let (honest, markdown) = run_step(KILL, &session).unwrap();
    assert_eq!(
        (&honest["kills"]["count"], &honest["lost"], &honest["duplicates"]),
        (&3.into(), &0.into(), &0.into()),
        "{honest}"
    );
    // The floor was killed after an insert was committed and before it read the answer, so it
    // inserted those rows again.
    assert!(honest["kills"]["duplicates_raw"].as_u64().unwrap() > 0, "{honest}");
    assert_eq!(honest["kills"]["no_subscriber"], 0, "{honest}");
    assert!(!markdown.contains("loses data"), "{markdown}");

    // A single run may lose nothing, see the comment of this test.
    let mut lost = 0;
    for _ in 0..RUNS_MAX {
        let (early, markdown) =
            run_step(KILL, &[&session[..], &["--acknowledge-first"]].concat()).unwrap();
        lost = early["lost"].as_u64().unwrap();
        assert_eq!(markdown.contains("**loses data**"), lost > 0, "{markdown}");
        if lost > 1_000 {
            return;
        }
    }
    panic!(
        "in {RUNS_MAX} runs with early acknowledgements, no more than 1,000 fixes were lost: {lost}"
    );
}
