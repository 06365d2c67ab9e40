//! The case with kill -9 is measured itself: a consumer that acknowledges before its insert is found, one that keeps
//! its session and acknowledges afterwards is not accused.

use std::process::Command;

use anyhow::Result;
use serde_json::Value;

/// Runs of the floor that acknowledges first, until one is killed with what it acknowledged in memory.
const TRIES_MAX: u32 = 4;

/// One step of a floor that keeps its session, as the report has it.
fn killed(arguments: &[&str]) -> Result<(Value, String)> {
    let results = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args([
        "bench",
        "--only",
        "kill-9",
        "--consumer",
        "floor",
        "--seconds",
        "8",
        "--tries",
        "5",
        "--busy",
    ]);
    // The floor is the laboratory itself; there is no milepost in this step, but there must be a file.
    command.args(["--milepost", env!("CARGO_BIN_EXE_lab"), "--results"]).arg(results.path());
    let session = ["--session", "kept"];
    command.args(session.iter().chain(arguments).map(|argument| format!("--floor-argument={argument}")));
    let output = command.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(results.path().join("latest.json"))?)?;
    let markdown = std::fs::read_to_string(results.path().join("latest.md"))?;
    Ok((report["trials"][0].clone(), markdown))
}

/// A broker that has no CPU has not read an acknowledgement when the socket is reset: it sends those messages again, and nothing is lost.
#[test]
#[ignore = "judges the moment of a kill, on a machine that does nothing else: `make faults` runs it"]
fn an_acknowledgement_before_the_insert_is_found() {
    let (honest, markdown) = killed(&[]).unwrap();
    assert_eq!(
        (&honest["kills"]["count"], &honest["lost"], &honest["duplicates"]),
        (&3.into(), &0.into(), &0.into()),
        "{honest}"
    );
    // An insert was committed whose answer the floor did not live to read: it inserted those rows once more.
    assert!(honest["kills"]["duplicates_raw"].as_u64().unwrap() > 0, "{honest}");
    assert_eq!(honest["kills"]["no_subscriber"], 0, "{honest}");
    assert!(!markdown.contains("loses data"), "{markdown}");

    // On a busy machine the messages may still be in the socket at each kill: nothing was acknowledged too early then.
    let mut lost = 0;
    for _ in 0..TRIES_MAX {
        let (hasty, markdown) = killed(&["--acknowledge-first"]).unwrap();
        lost = hasty["lost"].as_u64().unwrap();
        assert_eq!(markdown.contains("**loses data**"), lost > 0, "{markdown}");
        if lost > 1_000 {
            return;
        }
    }
    panic!("half a batch was acknowledged and in memory, twice, and {lost} were found lost");
}
