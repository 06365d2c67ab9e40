//! Determines version, commit and date of the build, for `src/build.rs`.

use std::env;
use std::process::Command;

/// Sets version, commit and date as environment variables for the compiler. Commit and date are
/// empty if unknown. The builds of a release and of an image set `MILEPOST_COMMIT` and
/// `SOURCE_DATE_EPOCH`; any other optimised build asks git. A debug build does not ask git, because
/// it would then be rebuilt at every commit.
fn main() {
    println!("cargo:rerun-if-env-changed=MILEPOST_COMMIT");
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let is_optimised = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let (commit, commit_seconds) = match variable("MILEPOST_COMMIT") {
        Some(commit) => (commit, None),
        None if is_optimised => commit_of_git().unwrap_or_default(),
        None => <_>::default(),
    };
    let unix_seconds = variable("SOURCE_DATE_EPOCH").or(commit_seconds);
    let unix_seconds = unix_seconds.and_then(|seconds| seconds.parse().ok());
    let date = unix_seconds.map(date).unwrap_or_default();
    let parts: Vec<&str> = [&*commit, &*date].into_iter().filter(|part| !part.is_empty()).collect();
    let details = if parts.is_empty() { "development build".to_owned() } else { parts.join(", ") };
    let version = env::var("CARGO_PKG_VERSION").expect("set by cargo");
    println!("cargo:rustc-env=MILEPOST_BUILD={version} ({details})");
    println!("cargo:rustc-env=MILEPOST_BUILD_COMMIT={commit}");
    println!("cargo:rustc-env=MILEPOST_BUILD_DATE={date}");
}

/// Returns the checked-out commit, with `+` if tracked files differ from it, and the commit's time
/// in Unix seconds. `None` outside a clone of milepost.
fn commit_of_git() -> Option<(String, Option<String>)> {
    let git = |arguments: &[&str]| {
        let done = Command::new("git")
            .args(arguments)
            .output()
            .ok()
            .filter(|done| done.status.success())?;
        String::from_utf8(done.stdout).ok().map(|text| text.trim().to_owned())
    };
    // In a crate unpacked inside another project's clone, git would name that project's commit.
    if git(&["rev-parse", "--show-prefix"])? != "crates/observe/" {
        return None;
    }
    // Rebuild when HEAD changes: the log of HEAD grows with every commit, checkout and rebase.
    let head = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    for path in ["../../src", "..", "../../Cargo.lock", "../../Cargo.toml", &head] {
        println!("cargo:rerun-if-changed={path}");
    }
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    Some((commit + if changed { "+" } else { "" }, git(&["show", "--no-patch", "--format=%ct"])))
}

/// Returns the day of a Unix time in UTC, as `YYYY-MM-DD` (Howard Hinnant's civil_from_days).
fn date(unix_seconds: u64) -> String {
    let days = unix_seconds / 86_400 + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_from_march + 2) / 5 + 1;
    let month = if months_from_march < 10 { months_from_march + 3 } else { months_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
