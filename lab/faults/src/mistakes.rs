//! Patches that plant mistakes which are typical of a consumer like milepost. The laboratory must
//! find each mistake by its row.

pub(crate) struct Mistake {
    /// Completes the sentence "a milepost that …".
    pub(crate) description: &'static str,
    /// The rows that must find the mistake.
    pub(crate) rows: &'static [&'static str],
    /// Patch against the checkout.
    pub(crate) patch: &'static str,
}

/// Patch for a milepost that keeps none of the values from which fields are computed.
pub const KEEPS_NO_FIELD_PATCH: &str = include_str!("mistakes/keeps_no_field.diff");

pub(crate) const ALL: [Mistake; 12] = [
    Mistake {
        description: "acknowledges before the insert",
        rows: &["kill-unsaved", "field-killed"],
        patch: include_str!("mistakes/ack_before_insert.diff"),
    },
    Mistake {
        description: "connects with clean_start",
        rows: &["cut"],
        patch: include_str!("mistakes/clean_start.diff"),
    },
    Mistake {
        description: "keeps the old connection's acknowledgements",
        rows: &["session-reborn"],
        patch: include_str!("mistakes/keep_old_acks.diff"),
    },
    Mistake {
        description: "treats an ambiguous failure as success",
        rows: &["reset-mid-body", "field-outage"],
        patch: include_str!("mistakes/ambiguous_is_success.diff"),
    },
    Mistake {
        description: "acknowledges another session's packet ids",
        rows: &["kill-unsaved"],
        patch: include_str!("mistakes/other_sessions_acks.diff"),
    },
    Mistake {
        description: "completes more messages of a session than a batch holds",
        rows: &["kill-unsaved"],
        patch: include_str!("mistakes/completes_too_much.diff"),
    },
    Mistake {
        description: "unsubscribes even if no other member stays",
        rows: &["pods"],
        patch: include_str!("mistakes/leave_always.diff"),
    },
    Mistake {
        description: "keeps its session even if another member stays",
        rows: &["pods"],
        patch: include_str!("mistakes/leave_never.diff"),
    },
    Mistake {
        description: "leaves a cluster's node without another attempt to reach it",
        rows: &["takeover"],
        patch: include_str!("mistakes/leaves_node_untried.diff"),
    },
    Mistake {
        description: "reconnects at once when another client takes its id",
        rows: &["zombie"],
        patch: include_str!("mistakes/fights_for_its_id.diff"),
    },
    Mistake {
        description: "gives an event the time of the insert",
        rows: &["events"],
        patch: include_str!("mistakes/event_of_the_insert.diff"),
    },
    Mistake {
        description: "keeps none of the values of fields",
        rows: &["field"],
        patch: KEEPS_NO_FIELD_PATCH,
    },
];

/// A planted mistake of the commands other than `run`, such as `import`.
pub(crate) struct CommandMistake {
    pub(crate) description: &'static str,
    /// Full name of the test in `tests/real` that must find the mistake.
    pub(crate) test: &'static str,
    /// Patch against the checkout.
    pub(crate) patch: &'static str,
}

pub(crate) const COMMAND_MISTAKES: [CommandMistake; 3] = [
    CommandMistake {
        description: "retries an insert with the list of erased drivers that it began with",
        test: "writers::retried_insert_skips_a_driver_erased_meanwhile",
        patch: include_str!("mistakes/stale_list.diff"),
    },
    CommandMistake {
        description: "gives up on an insert that a proxy refuses as too large",
        test: "writers::every_command_splits_an_insert_refused_as_too_large",
        patch: include_str!("mistakes/splits_nothing.diff"),
    },
    CommandMistake {
        description: "compares only the number of a file's stored fixes when it resumes",
        test: "import::resumed_import_skips_only_what_it_stored",
        patch: include_str!("mistakes/resume_by_count.diff"),
    },
];

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;
    use lab_stack::repository;

    #[test]
    fn patch_of_every_mistake_still_applies() {
        let row_patches = ALL.iter().map(|mistake| (mistake.description, mistake.patch));
        let command_patches =
            COMMAND_MISTAKES.iter().map(|mistake| (mistake.description, mistake.patch));
        for (description, patch) in row_patches.chain(command_patches) {
            let mut git = Command::new("git")
                .args(["apply", "--check", "-"])
                .current_dir(repository())
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            git.stdin.take().unwrap().write_all(patch.as_bytes()).unwrap();
            assert!(
                git.wait().unwrap().success(),
                "the patch for a milepost that {description} no longer applies"
            );
        }
    }
}
