//! Seeds of cases that failed before. A property test with saved seeds tries these seeds first.

use std::any::Any;
use std::fmt::Debug;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::{FailurePersistence, PersistedSeed};

use crate::cases::cases;

const CONSUMER_MODEL_SEEDS: &str = include_str!("saved/consumer_model.txt");

/// Returns a configuration that runs the saved seeds of consumer_model.rs, and then `count` cases.
pub fn with_saved_seeds(count: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: Some(Box::new(SavedSeeds)), ..cases(count) }
}

#[derive(Debug, Clone)]
struct SavedSeeds;

impl FailurePersistence for SavedSeeds {
    fn load_persisted_failures2(&self, _: Option<&'static str>) -> Vec<PersistedSeed> {
        let seeds = CONSUMER_MODEL_SEEDS.lines().filter(|line| line.starts_with("cc "));
        seeds.map(|line| line.parse().expect("a seed is 64 hex digits")).collect()
    }

    /// Prints the seed instead of saving it: a test writes nothing into the tree.
    fn save_persisted_failure2(
        &mut self,
        _: Option<&'static str>,
        seed: PersistedSeed,
        _: &dyn Debug,
    ) {
        eprintln!(
            "to run this case first in future, add this line to \
             crates/core/tests/pure/saved/consumer_model.txt: {seed}"
        );
    }

    fn box_clone(&self) -> Box<dyn FailurePersistence> {
        Box::new(self.clone())
    }

    fn eq(&self, other: &dyn FailurePersistence) -> bool {
        other.as_any().is::<Self>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
