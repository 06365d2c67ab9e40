//! The case with kill -9 is measured itself: a consumer that acknowledges before its insert is found, one that keeps
//! its session and acknowledges afterwards is not accused.

use std::process::Command;

use anyhow::Result;
use serde_json::Value;

/// One step of a floor that keeps its session, as the report has it.
fn killed(arguments: &[&str]) -> Result<(Value, String)> {
    let results = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["bench", "--only", "kill-9", "--consumer", "floor", "--seconds", "8", "--tries", "5"]);
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

#[test]
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

    let (hasty, markdown) = killed(&["--acknowledge-first"]).unwrap();
    let lost = hasty["lost"].as_u64().unwrap();
    assert!(lost > 1_000, "half a batch was acknowledged and in memory, twice: {hasty}");
    assert!(markdown.contains("**loses data**"), "{markdown}");
}
