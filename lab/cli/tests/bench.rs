//! The yardstick is measured itself: what a consumer does wrong is in the report.

use std::process::Command;

use anyhow::Result;
use serde_json::Value;

/// One step of the floor with these arguments, as the report has it.
fn measured(arguments: &[&str]) -> Result<Value> {
    let results = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    let step = "bench --only sink-10k-qos0 --consumer floor --seconds 2 --repetitions 1 --tries 5 --busy";
    command.args(step.split(' '));
    // The floor is the laboratory itself; there is no milepost in this step, but there must be a file.
    command.args(["--milepost", env!("CARGO_BIN_EXE_lab"), "--results"]).arg(results.path());
    command.args(arguments.iter().map(|argument| format!("--floor-argument={argument}")));
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    let report = std::fs::read_to_string(results.path().join("latest.json"))?;
    let report: Value = serde_json::from_str(&report)?;
    let markdown = std::fs::read_to_string(results.path().join("latest.md"))?;
    assert!(markdown.contains("| floor |"), "{markdown}");
    Ok(report["trials"][0].clone())
}

#[test]
fn drops_and_duplicates_are_in_the_report() {
    let honest = measured(&[]).unwrap();
    assert_eq!(
        (&honest["messages"], &honest["lost"], &honest["duplicates"]),
        (&40_000.into(), &0.into(), &0.into())
    );
    assert!(
        honest["cpu_us_per_message"].as_f64().unwrap() > 0.0
            && honest["rss_peak_mib"].as_f64().unwrap() > 1.0,
        "{honest}"
    );
    assert!(honest["flush_own_ms"].is_array() && honest["flush_seen_ms"].is_array(), "{honest}");

    let drops = measured(&["--drop-every", "1000"]).unwrap();
    assert_eq!((&drops["lost"], &drops["duplicates"]), (&40.into(), &0.into()));
    let duplicates = measured(&["--duplicate-every", "1000"]).unwrap();
    assert_eq!((&duplicates["lost"], &duplicates["duplicates"]), (&0.into(), &40.into()));
}

#[test]
#[ignore = "judges CPU, on a machine that does nothing else: `make faults` runs it"]
fn burnt_cpu_is_in_the_report() {
    let cpu = |trial: &Value| trial["cpu_us_per_message"].as_f64().unwrap();
    let burns = || cpu(&measured(&["--burn-us", "20"]).unwrap()) - cpu(&measured(&[]).unwrap());
    assert!((0..3).any(|_| (14.0..=28.0).contains(&burns())), "20 µs a message were burnt, and not found");
}

#[test]
fn a_busy_machine_is_refused() {
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
    let refused = lab.args(["bench", "--only", "sink-10k-qos0", "--consumer", "floor"]).output();
    busy.kill().unwrap();
    busy.wait().unwrap();
    let said = String::from_utf8(refused.unwrap().stderr).unwrap();
    assert!(said.contains("cores of this machine") && said.contains("--busy"), "{said}");
}
