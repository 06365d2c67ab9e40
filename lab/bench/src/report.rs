//! What has been measured so far: figures over repetitions, and ratios between consumers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::cases::Case;
use crate::consumer::Binaries;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::trial::{Account, Trial};

/// One figure of a step.
pub(crate) type Of = fn(&Trial) -> Option<f64>;

/// A message's, in microseconds.
pub(crate) const CPU: Of = |trial| Some(trial.cpu_us_per_message);

/// The trials, and what they were measured on.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// Name, and what it is.
    pub(crate) consumers: Vec<(&'static str, String)>,
    /// Consumers that could not be had, and why.
    pub(crate) missing: BTreeMap<&'static str, String>,
    pub(crate) trials: Vec<Trial>,
    #[serde(skip)]
    pub(crate) cases: Vec<Case>,
}

/// One figure over the repetitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Figure {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), least, most })
    }

    /// "12.3", or with its spread "12.3 (11.9–12.8)".
    pub(crate) fn in_words(self, digits: usize, with_spread: bool) -> String {
        let Self { median, least, most } = self;
        let spread =
            if with_spread { format!(" ({least:.digits$}–{most:.digits$})") } else { String::new() };
        format!("{median:.digits$}{spread}")
    }
}

/// One consumer's steps of one case.
pub(crate) struct Row<'a> {
    pub(crate) kind: Kind,
    pub(crate) good: Vec<&'a Trial>,
}

impl Row<'_> {
    pub(crate) fn figure(&self, of: impl Fn(&Trial) -> Option<f64>) -> Option<Figure> {
        Figure::of(self.good.iter().filter_map(|trial| of(trial)).collect())
    }

    /// How many times `base`'s figure this one's is, by pairs of the same repetition: they ran within minutes of each
    /// other, so what drifts with the machine drops out.
    pub(crate) fn ratio_to(&self, base: &Self, of: impl Fn(&Trial) -> Option<f64>) -> Option<Figure> {
        let ratio = |trial: &&Trial| {
            let paired = base.good.iter().find(|other| other.repetition == trial.repetition)?;
            Some(of(trial)? / of(paired).filter(|figure| *figure > 0.0)?)
        };
        Figure::of(self.good.iter().filter_map(ratio).collect())
    }

    pub(crate) fn account(&self) -> Option<Account> {
        Account::of(self.good.iter().copied())
    }
}

/// One consumer's figure of one case.
pub(crate) struct Measured {
    pub(crate) kind: Kind,
    pub(crate) figure: Figure,
    /// Of milepost's, within repetitions; `None`: there is no repetition that has both.
    pub(crate) ratio: Option<f64>,
}

impl Report {
    pub(crate) fn new(machine: Machine, cases: &[Case], binaries: Option<&Binaries>) -> Self {
        let kinds: BTreeSet<Kind> = cases.iter().flat_map(|case| case.kinds.clone()).collect();
        let missing = |kind: &Kind| Some((kind.name(), binaries?.missing(*kind)?.to_owned()));
        Self {
            machine,
            consumers: kinds.iter().map(|kind| (kind.name(), kind.describe())).collect(),
            missing: kinds.iter().filter_map(missing).collect(),
            trials: Vec::new(),
            cases: cases.to_vec(),
        }
    }

    pub(crate) fn add(&mut self, trial: Trial) {
        if let Some(version) = &trial.engine_version {
            self.machine.versions.insert("ClickHouse engine".to_owned(), version.clone());
        }
        self.trials.push(trial);
    }

    /// Every consumer of every case that can be had has a figure that counts.
    pub(crate) fn is_complete(&self) -> bool {
        let had = |row: &&Row<'_>| !self.missing.contains_key(row.kind.name());
        self.cases.iter().all(|case| self.rows(case).iter().filter(had).all(|row| !row.good.is_empty()))
    }

    /// Steps that were asked for.
    pub(crate) fn planned(&self) -> usize {
        self.cases.iter().map(|case| case.kinds.len() * case.repetitions as usize).sum()
    }

    pub(crate) fn trials_of(&self, case: &Case, kind: Kind) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |trial| trial.case == case.name && trial.consumer == kind.name())
    }

    pub(crate) fn rows(&self, case: &Case) -> Vec<Row<'_>> {
        let mut kinds = case.kinds.clone();
        kinds.sort_unstable();
        let good = |kind| self.trials_of(case, kind).filter(|trial| trial.refused.is_empty()).collect();
        kinds.into_iter().map(|kind| Row { kind, good: good(kind) }).collect()
    }

    /// The consumers of a case that have this figure.
    pub(crate) fn measured(&self, case: &Case, of: Of) -> Vec<Measured> {
        let rows = self.rows(case);
        let milepost = rows.iter().find(|row| row.kind == Kind::Milepost);
        let one = |row: &Row<'_>| {
            let ratio = milepost.and_then(|milepost| row.ratio_to(milepost, of)).map(|ratio| ratio.median);
            Some(Measured { kind: row.kind, figure: row.figure(of)?, ratio })
        };
        rows.iter().filter_map(one).collect()
    }

    /// Cores that others took while it counted, at the most; and how many steps count.
    pub(crate) fn others_and_counted(&self) -> (f64, usize) {
        let good = self.trials.iter().filter(|trial| trial.refused.is_empty());
        good.fold((0.0, 0), |(most, count), trial| (trial.others_cores.max(most), count + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let trial =
            |repetition, cpu_us_per_message| Trial { repetition, cpu_us_per_message, ..Trial::default() };
        // The machine is twice as slow in the second repetition, and the third has no partner.
        let ours = [trial(0, 1.0), trial(1, 2.0)];
        let theirs = [trial(0, 8.0), trial(1, 16.0), trial(2, 100.0)];
        let ours = Row { kind: Kind::Milepost, good: ours.iter().collect() };
        let theirs = Row { kind: Kind::Node, good: theirs.iter().collect() };
        let ratio = theirs.ratio_to(&ours, |t| Some(t.cpu_us_per_message)).unwrap();
        assert_eq!((ratio.least, ratio.median, ratio.most), (8.0, 8.0, 8.0));
        assert!(theirs.ratio_to(&ours, |t| t.stored_per_second).is_none());
    }
}
