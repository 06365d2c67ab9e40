//! How many cases a property is tried on, for every crate of the workspace. Which these are follows
//! from PROPTEST_RNG_SEED.
//!
//! Guarantee: a failure writes nothing into the tree. It is repeated by running the same command
//! with the same seed.

use proptest::prelude::ProptestConfig;

/// Returns a configuration with `all` cases, or the percentage of them in the variable
/// `CASES_PERCENT`.
pub(crate) fn cases(all: u32) -> ProptestConfig {
    let percent = std::env::var("CASES_PERCENT")
        .map_or(100, |text| text.parse().expect("CASES_PERCENT is a number"));
    ProptestConfig {
        cases: (all * percent / 100).max(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
