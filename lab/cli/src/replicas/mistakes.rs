//! Planted mistakes of a consumer of replicated tables. Each must make its row fail.

/// How a mistake is planted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Made {
    /// Patch against the checkout.
    ByPatch(&'static str),
    /// Value of `clickhouse.insert_quorum`.
    ByQuorum(&'static str),
}

pub(super) struct Mistake {
    pub(super) what: &'static str,
    pub(super) row: &'static str,
    pub(super) made: Made,
}

pub(super) const ALL: [Mistake; 5] = [
    Mistake { what: "asks for no quorum", row: "cut_then_killed", made: Made::ByQuorum("0") },
    Mistake {
        what: "treats error 319 (unknown status of insert) as success",
        row: "cut_then_killed",
        made: Made::ByPatch(include_str!("mistakes/unknown_is_success.diff")),
    },
    Mistake {
        what: "keeps its token after an ambiguous failure",
        row: "disk_lost",
        made: Made::ByPatch(include_str!("mistakes/token_kept.diff")),
    },
    Mistake {
        what: "stores rows of erased drivers",
        row: "erased",
        made: Made::ByPatch(include_str!("mistakes/erased_taken.diff")),
    },
    Mistake {
        what: "keeps none of the values of fields",
        row: "field",
        made: Made::ByPatch(lab_faults::KEEPS_NO_FIELD),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use lab_stack::repository;

    #[test]
    fn patch_of_every_mistake_still_applies() {
        for mistake in &ALL {
            let Made::ByPatch(patch) = mistake.made else { continue };
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
                mistake.what
            );
        }
    }
}
