//! Version, commit and date of this build, as the crate's `build.rs` determined them.

/// The version in `Cargo.toml`, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit: twelve hexadecimal digits, then `+` if tracked files had been changed. Empty if
/// unknown, as in a debug build.
pub const COMMIT: &str = env!("MILEPOST_BUILD_COMMIT");
/// The day of the commit in UTC, such as `2026-11-22`. Empty if unknown.
pub const DATE: &str = env!("MILEPOST_BUILD_DATE");
/// The version as `--version` prints it: `0.1.0 (9b5362934c1d, 2026-11-22)`.
pub const LONG: &str = env!("MILEPOST_BUILD");
