//! Number of cases of a property test, for every crate of the workspace. `PROPTEST_RNG_SEED`
//! selects the cases.
//!
//! A failing test writes nothing into the source tree. To repeat a failure, run the same command
//! with the same seed.

use proptest::prelude::ProptestConfig;

/// Returns a configuration with `all` cases. If the environment variable `CASES_PERCENT` is set,
/// only this percentage of the cases runs.
pub(crate) fn cases(all: u32) -> ProptestConfig {
    let percent = std::env::var("CASES_PERCENT")
        .map_or(100, |text| text.parse().expect("CASES_PERCENT must be a number"));
    ProptestConfig {
        cases: (all * percent / 100).max(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
