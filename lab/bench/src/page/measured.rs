//! What the page takes from the report: figures with their ratios, and why some are not there.

use std::collections::{BTreeMap, BTreeSet};

use super::plot::{Mark, Point, Series};
use crate::account::Account;
use crate::cases::{self, Case};
use crate::consumer::Kind;
use crate::report::{Figure, Report, Row};
use crate::trial::Trial;

/// One figure of a step.
pub(super) type Of = fn(&Trial) -> Option<f64>;

/// A message's, in microseconds.
pub(super) const CPU: Of = |trial| Some(trial.cpu_us_per_message);

/// One consumer's figure of one case.
pub(super) struct Measured {
    pub(super) kind: Kind,
    pub(super) figure: Figure,
    /// Of milepost's, within repetitions; `None`: there is no repetition that has both.
    pub(super) ratio: Option<f64>,
}

/// How a consumer looks wherever it is shown.
pub(super) fn mark(kind: Kind) -> Mark {
    let index = Kind::ALL.iter().position(|known| *known == kind).unwrap_or(0);
    Mark { name: kind.name(), index }
}

/// The consumers of a case that have this figure.
pub(super) fn measured(report: &Report, case: &Case, of: Of) -> Vec<Measured> {
    let rows = report.rows(case);
    let milepost = rows.iter().find(|row| row.kind == Kind::Milepost);
    let one = |row: &Row<'_>| {
        let ratio = milepost.and_then(|milepost| row.ratio_to(milepost, of)).map(|ratio| ratio.median);
        Some(Measured { kind: row.kind, figure: row.figure(of)?, ratio })
    };
    rows.iter().filter_map(one).collect()
}

/// The cases of a kind; where the report was asked for none of them, those it could have been asked for.
pub(super) fn cases_where(report: &Report, chosen: impl Fn(&Case) -> bool) -> Vec<Case> {
    let asked: Vec<Case> = report.cases().iter().filter(|case| chosen(case)).cloned().collect();
    if asked.is_empty() { cases::full().into_iter().filter(|case| chosen(case)).collect() } else { asked }
}

/// Of several cases the one that says most: measured with the most consumers, then at the highest rate.
pub(super) fn busiest(report: &Report, chosen: impl Fn(&Case) -> bool) -> Option<Case> {
    let cases = cases_where(report, chosen);
    let told = |case: &Case| report.rows(case).iter().filter(|row| !row.good.is_empty()).count();
    cases.into_iter().max_by_key(|case| (told(case), case.rate))
}

/// A line a consumer over several cases that differ in one thing.
pub(super) fn series(report: &Report, cases: &[Case], x: fn(&Case) -> f64, of: Of) -> Vec<Series> {
    let figures: Vec<(f64, Vec<Measured>)> =
        cases.iter().map(|case| (x(case), measured(report, case, of))).collect();
    let line = |kind: Kind| {
        let mut points = Vec::new();
        let mut joined = false;
        for (x, all) in &figures {
            let Some(one) = all.iter().find(|one| one.kind == kind) else {
                joined = false;
                continue;
            };
            let Figure { median, least, most } = one.figure;
            points.push(Point { x: *x, median, least, most, ratio: one.ratio, joined });
            joined = true;
        }
        (!points.is_empty()).then(|| Series { mark: mark(kind), points })
    };
    Kind::ALL.into_iter().filter_map(line).collect()
}

/// What stands between these cases and a complete and unblemished plot, a sentence each.
pub(super) fn gaps(report: &Report, cases: &[Case], of: Of) -> Vec<String> {
    let mut notes = Vec::new();
    let mut single = BTreeSet::new();
    let (mut figures, mut singles) = (0, 0);
    let asked = |case: &Case| report.cases().iter().any(|asked| asked.name == case.name);
    // All or none: the others of a plot are not looked for where one was asked for.
    if !cases.iter().any(asked) {
        return vec!["Not asked for in this run.".to_owned()];
    }
    for case in cases {
        let mut why: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for kind in &case.kinds {
            let good = report.trials_of(case, *kind).filter(|trial| trial.refused.is_empty());
            let count = good.filter(|trial| of(trial).is_some()).count();
            figures += count.min(1);
            if count == 1 {
                singles += 1;
                single.insert(format!("`{}`", case.name));
            }
            let account = Account::of(report.trials_of(case, *kind));
            if let Some(account) = account.filter(|account| account.lost + account.twice > 0) {
                notes.push(format!("`{}`, {}: {}.", case.name, kind.name(), account.in_words()));
            }
            if let Some(reason) = reason_of_gap(report, case, *kind, count) {
                why.entry(reason).or_default().push(kind.name());
            }
        }
        for (reason, kinds) in why {
            let who = if kinds.len() == case.kinds.len() { "all".to_owned() } else { kinds.join(", ") };
            notes.push(format!("`{}`, {who}: {reason}.", case.name));
        }
    }
    if figures > 1 && singles == figures {
        notes.push("Every figure here is of one repetition.".to_owned());
    } else if !single.is_empty() {
        let single: Vec<String> = single.into_iter().collect();
        notes.push(format!("Of one repetition, all or some: {}.", single.join(", ")));
    }
    notes
}

fn reason_of_gap(report: &Report, case: &Case, kind: Kind, figures: usize) -> Option<String> {
    if let Some(why) = report.missing_because(kind) {
        return Some(format!("cannot be had here: {why}"));
    }
    let trials: Vec<&Trial> = report.trials_of(case, kind).collect();
    let refused: Vec<&&Trial> = trials.iter().filter(|trial| !trial.refused.is_empty()).collect();
    let why = refused.first().map(|trial| trial.refused.join("; ")).unwrap_or_default();
    match (figures, refused.len(), trials.len()) {
        (_, _, 0) => Some("not reached".to_owned()),
        (0, 0, _) => Some("has no such figure".to_owned()),
        (_, 0, _) => None,
        (_, refused, all) => Some(format!("{refused} of {all} repetitions do not count: {why}")),
    }
}
