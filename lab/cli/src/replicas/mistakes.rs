//! Planted mistakes of a consumer of replicated tables. Each must make its row fail.

/// The way in which a mistake is planted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Plant {
    /// Patch against the checkout.
    Patch(&'static str),
    /// Value of `clickhouse.insert_quorum`.
    InsertQuorum(&'static str),
}

pub(super) struct Mistake {
    /// Completes the sentence "a milepost that …".
    pub(super) description: &'static str,
    pub(super) row: &'static str,
    pub(super) plant: Plant,
}

pub(super) const ALL: [Mistake; 5] = [
    Mistake {
        description: "asks for no quorum",
        row: "cut_then_killed",
        plant: Plant::InsertQuorum("0"),
    },
    Mistake {
        description: "treats error 319 (unknown status of insert) as success",
        row: "cut_then_killed",
        plant: Plant::Patch(include_str!("mistakes/unknown_is_success.diff")),
    },
    Mistake {
        description: "keeps its token after an ambiguous failure",
        row: "disk_lost",
        plant: Plant::Patch(include_str!("mistakes/token_kept.diff")),
    },
    Mistake {
        description: "stores rows of erased drivers",
        row: "erased",
        plant: Plant::Patch(include_str!("mistakes/erased_taken.diff")),
    },
    Mistake {
        description: "keeps none of the values of fields",
        row: "field",
        plant: Plant::Patch(lab_faults::KEEPS_NO_FIELD_PATCH),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use lab_stack::repository;

    #[test]
    fn patch_of_every_mistake_still_applies() {
        for mistake in &ALL {
            let Plant::Patch(patch) = mistake.plant else { continue };
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), patch).unwrap();
            let mut git = std::process::Command::new("git");
            let status = git
                .args(["apply", "--check"])
                .arg(file.path())
                .current_dir(repository())
                .status()
                .unwrap();
            assert!(
                status.success(),
                "the patch for a milepost that {} no longer applies",
                mistake.description
            );
        }
    }
}
