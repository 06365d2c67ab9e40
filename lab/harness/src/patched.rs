//! Builds a milepost with a patch applied, in a copy of the checkout. The patches are the recipe in
//! docs/, which must work, and the planted mistakes, which the laboratory must find.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use lab_stack::repository;

/// Applies `patch` to a copy of the checkout's files, builds the binary without optimisation, and
/// returns the binary's path. The next call overwrites the binary.
pub fn build(patch: &str) -> Result<PathBuf> {
    let folder = TempDir::new()?;
    // Use the same path for every patch, so that cargo reuses the build of the previous patch.
    let sources = repository().join("target/patched/sources");
    let _ = std::fs::remove_dir_all(&sources);
    copy_sources(&sources)?;
    let file = folder.path().join("patch.diff");
    std::fs::write(&file, patch)?;
    run(Command::new("git").args(["init", "-q"]).current_dir(&sources))?;
    run(Command::new("git").arg("apply").arg(&file).current_dir(&sources))?;
    let target = repository().join("target/patched/build");
    reuse_dependencies(&target)?;
    // `nice`, because tests with real servers run at the same time. `--workspace`, so that the
    // dependencies get the same features as in the checkout.
    let build =
        ["-n", "5", "cargo", "build", "--locked", "--offline", "--workspace", "--bin", "milepost"];
    let mut nice = Command::new("nice");
    // tests/run sets RUSTC_BOOTSTRAP for the JSON output of libtest. The build must not inherit
    // this variable.
    nice.args(build)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTC_BOOTSTRAP")
        .current_dir(&sources);
    run(&mut nice)?;
    let built = target.join("debug/milepost");
    ensure!(built.exists(), "no binary at {}", built.display());
    Ok(built)
}

/// Compiles every test of the sources that [`build`] has patched, and runs the tests of the decoder
/// and the core.
pub fn test() -> Result<()> {
    let compile: &[&str] = &["check", "--workspace", "--tests"];
    let run_tests: &[&str] = &["test", "--lib", "-p", "milepost-decode", "-p", "milepost-core"];
    for arguments in [compile, run_tests] {
        let mut nice = Command::new("nice");
        nice.args(["-n", "5", "cargo"]).args(arguments).args(["--locked", "--offline", "--quiet"]);
        nice.env("CARGO_TARGET_DIR", repository().join("target/patched/build"))
            .env_remove("RUSTC_BOOTSTRAP");
        run(nice.current_dir(repository().join("target/patched/sources")))?;
    }
    Ok(())
}

/// Returns whether a test of `tests/real` fails with a binary that [`build`] made. An error means
/// that the test did not run. `test`: the test's full name.
pub fn test_fails(test: &str, binary: &Path) -> Result<bool> {
    let mut nice = Command::new("nice");
    nice.args(["-n", "5", "cargo", "test", "--locked", "--offline", "-p", "milepost"])
        .args(["--test", "real", "--", "--exact", test])
        .env("MILEPOST_TESTED", binary)
        .env_remove("RUSTC_BOOTSTRAP")
        .current_dir(repository());
    let output = nice.output().with_context(|| format!("{nice:?}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let has_verdict = |verdict: &str| printed.contains(&format!("test {test} ... {verdict}"));
    ensure!(has_verdict("ok") || has_verdict("FAILED"), "{nice:?}: {printed}");
    Ok(has_verdict("FAILED"))
}

/// Reuses the dependencies that the checkout's own build has compiled. Only the crates of the
/// workspace are compiled again, because their path differs. Libraries are hard links. The folders
/// of build scripts are copied, because a build script would overwrite the checkout's own files.
fn reuse_dependencies(target: &Path) -> Result<()> {
    let built = repository().join("target/debug");
    if target.exists() || !built.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(target.join("debug"))?;
    let parts = [".fingerprint", "build"].map(|part| built.join(part));
    run(Command::new("cp").arg("-a").args(parts).arg(target.join("debug")))?;
    run(Command::new("cp").arg("-al").arg(built.join("deps")).arg(target.join("debug")))
}

/// Copies the files of the checkout, without build products and ignored files.
fn copy_sources(to: &Path) -> Result<()> {
    let list = Command::new("git")
        .args(["ls-files", "-z", "-co", "--exclude-standard"])
        .current_dir(repository())
        .output()?;
    ensure!(list.status.success(), "git ls-files: {}", String::from_utf8_lossy(&list.stderr));
    for name in String::from_utf8(list.stdout)?.split_terminator('\0') {
        let (from, to) = (repository().join(name), to.join(name));
        if from.is_file() {
            std::fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Runs a command. Fails with its stderr if it does not succeed.
fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
