//! Continues an interrupted run. A measured step in its record is not run again.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::findings;
use crate::plan::{Limit, Step};
use crate::record::{Outcome, Record};

/// Copies the outcomes and findings of an interrupted run, whose record is in `folder`, into
/// `record`. Steps that could not be measured are not copied, so they are run again.
///
/// # Errors
///
/// There is no record, or the record is of another command, commit or machine: its figures would
/// not be comparable with this run's figures.
pub(crate) fn take_earlier_outcomes(record: &mut Record, folder: &Path) -> Result<()> {
    let file = folder.join("story.json");
    let text = std::fs::read_to_string(&file).with_context(|| {
        format!("{}: --resume needs the record of an interrupted run", file.display())
    })?;
    let earlier: Record = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a record of lab story", file.display()))?;
    for (aspect, earlier_value, value) in [
        ("by the command", &earlier.command, &record.command),
        ("at commit", commit(&earlier), commit(record)),
        ("on the processor", &earlier.machine.cpu, &record.machine.cpu),
        ("on the kernel", &earlier.machine.kernel, &record.machine.kernel),
    ] {
        ensure!(
            earlier_value == value,
            "{} was made {aspect} {earlier_value:?}, this run {aspect} {value:?}: repeat the earlier run as it was, or leave out --resume",
            file.display()
        );
    }
    record.minutes = earlier.minutes;
    record.outcomes = earlier.outcomes;
    record.outcomes.retain(|outcome| outcome.error.is_none());
    for consumer in &mut record.consumers {
        let outcomes = record.outcomes.iter().filter(|outcome| outcome.consumer == consumer.name);
        consumer.findings.extend(outcomes.flat_map(findings::find));
    }
    Ok(())
}

fn commit(record: &Record) -> &String {
    static NONE: String = String::new();
    record.machine.versions.get("commit").unwrap_or(&NONE)
}

/// Returns whether the record already has this step of this consumer.
pub(crate) fn has_step(
    record: &Record,
    part: &str,
    consumer: &str,
    step: &Step,
    limit: Option<Limit>,
) -> bool {
    let matches = |outcome: &Outcome| {
        outcome.part == part
            && outcome.consumer == consumer
            && outcome.limit == limit
            && outcome.step.is_some_and(|earlier| earlier.is_same_load(step))
    };
    record.outcomes.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Returns the recorded run in docs/story.json.
    fn recorded() -> Record {
        let file = lab_stack::repository().join("docs/story.json");
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    }

    /// Returns a run of the same command, commit and machine, before its first step.
    fn new_run(earlier: &Record) -> Record {
        let mut record = Record { minutes: 0.0, outcomes: Vec::new(), ..earlier.clone() };
        record.consumers.iter_mut().for_each(|consumer| consumer.findings.clear());
        record
    }

    fn write(record: &Record, folder: &TempDir) {
        let text = serde_json::to_string(record).unwrap();
        std::fs::write(folder.path().join("story.json"), text).unwrap();
    }

    #[test]
    fn resumed_run_has_the_outcomes_and_findings_of_the_interrupted_run() {
        let (folder, earlier) = (TempDir::new().unwrap(), recorded());
        write(&earlier, &folder);
        let mut record = new_run(&earlier);
        take_earlier_outcomes(&mut record, folder.path()).unwrap();
        assert_eq!(serde_json::to_value(&record).unwrap(), serde_json::to_value(&earlier).unwrap());
        for Outcome { part, consumer, step, limit, .. } in &earlier.outcomes {
            assert!(has_step(&record, part, consumer, &step.unwrap(), *limit));
            let step_at_another_rate = Step { rate: 7, ..step.unwrap() };
            assert!(!has_step(&record, part, consumer, &step_at_another_rate, *limit));
        }
    }

    #[test]
    fn failed_step_is_run_again() {
        let (folder, mut earlier) = (TempDir::new().unwrap(), recorded());
        earlier.outcomes[0].error = Some("no port was free".to_owned());
        write(&earlier, &folder);
        let mut record = new_run(&earlier);
        take_earlier_outcomes(&mut record, folder.path()).unwrap();
        let Outcome { part, consumer, step, limit, .. } = &earlier.outcomes[0];
        assert!(!has_step(&record, part, consumer, &step.unwrap(), *limit));
    }

    #[test]
    fn run_of_another_commit_or_command_is_not_resumed() {
        let (folder, earlier) = (TempDir::new().unwrap(), recorded());
        write(&earlier, &folder);
        let mut other = new_run(&earlier);
        other.machine.versions.insert("commit".to_owned(), "1234567".to_owned());
        let error = take_earlier_outcomes(&mut other, folder.path()).unwrap_err().to_string();
        assert!(error.contains("at commit") && error.contains("1234567"), "{error}");
        let mut other = new_run(&earlier);
        other.command = "make story ARGS='--only kill'".to_owned();
        let error = take_earlier_outcomes(&mut other, folder.path()).unwrap_err().to_string();
        assert!(error.contains("by the command"), "{error}");
        std::fs::remove_file(folder.path().join("story.json")).unwrap();
        let error = take_earlier_outcomes(&mut new_run(&earlier), folder.path()).unwrap_err();
        assert!(format!("{error:#}").contains("--resume needs the record"), "{error:#}");
    }
}
