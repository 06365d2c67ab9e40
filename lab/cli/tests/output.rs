//! The output of `lab` when the reader of its pipe has closed it.

use std::process::{Command, Stdio};

#[test]
fn list_succeeds_if_the_reader_closes_the_pipe() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
    let listed = lab.args(["faults", "--list"]).stdout(writer).stderr(Stdio::piped()).output();
    let listed = listed.unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
}
