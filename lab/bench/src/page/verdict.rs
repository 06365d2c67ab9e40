//! Whom to run, and why: the top of the page, to be read within a minute.
//!
//! Cost alone would recommend whoever acknowledges what it then loses. So a kill -9 stands in each row, as it was
//! measured, or as not measured; and only who lost nothing is recommended.

use super::questions::{busiest, command};
use crate::cases::Case;
use crate::kind::Kind;
use crate::report::{CPU, Report};
use crate::trial::Account;
use crate::words::times;

/// The case in which consumers are killed.
const KILLED: &str = "kill-9";

/// Who might be run.
struct Candidate {
    kind: Kind,
    /// The ratio of a message's CPU to milepost's.
    cpu: Option<f64>,
    killed: Option<Account>,
    /// At QoS 1, where nothing should be lost.
    alive: Option<Account>,
}

impl Candidate {
    /// As far as it was measured, it kept what it acknowledged.
    fn kept_all(&self) -> bool {
        self.killed.is_some_and(|account| account.lost == 0 && !account.gone)
            && self.alive.is_none_or(|account| account.lost == 0)
    }

    fn cpu_in_words(&self) -> String {
        self.cpu.map_or("CPU not measured".to_owned(), |ratio| format!("{} milepost's CPU", times(ratio)))
    }

    fn with_cpu(&self) -> String {
        format!("{} ({})", self.kind.name(), self.cpu_in_words())
    }
}

/// What follows from the figures; nothing of it is known before.
pub(super) fn of(report: &Report) -> Vec<String> {
    let some = |case: &Case| report.rows(case).iter().any(|row| !row.good.is_empty());
    let case_of = |prefix| busiest(report, |case| case.name.starts_with(prefix)).filter(some);
    let case = case_of("engine-").or_else(|| case_of("sink-"));
    let measured = case.map_or(Vec::new(), |case| report.measured(&case, CPU));
    let account = |kind: Kind, chosen: &dyn Fn(&Case) -> bool| {
        let cases = report.cases.iter().filter(|case| chosen(case));
        Account::of(cases.flat_map(|case| report.trials_of(case, kind)))
    };
    let asked = |kind: &Kind| report.cases.iter().any(|case| case.kinds.contains(kind));
    let candidates = Kind::ALL.into_iter().filter(asked).map(|kind| Candidate {
        kind,
        cpu: measured.iter().find(|one| one.kind == kind).and_then(|one| one.ratio),
        killed: account(kind, &|case| case.name == KILLED),
        alive: account(kind, &|case| case.name != KILLED && case.qos == 1),
    });
    let mut ranked: Vec<Candidate> = candidates.collect();
    let cpu = |one: &Candidate| one.cpu.unwrap_or(f64::INFINITY);
    ranked.sort_by(|one, other| cpu(one).total_cmp(&cpu(other)));
    [recommended(&ranked), cheapest(&ranked), losers(&ranked)].into_iter().flatten().collect()
}

/// The cheapest that kept its promise; the floor is none to run, because it does not reconnect.
fn recommended(ranked: &[Candidate]) -> Option<String> {
    if ranked.iter().all(|candidate| candidate.killed.is_none()) {
        return Some(format!(
            "**Whom to run cannot be said from this run alone**: what a kill -9 loses was not measured (`{}`).",
            command(&[KILLED])
        ));
    }
    let service = |one: &&Candidate| one.kind != Kind::Floor && one.cpu.is_some() && one.kept_all();
    let mut kept = ranked.iter().filter(service);
    let best = kept.next()?;
    let others: Vec<String> = kept.map(|one| one.with_cpu()).collect();
    let after = if others.is_empty() {
        "No other service is known to have lost nothing.".to_owned()
    } else {
        format!("After it: {}.", others.join(", "))
    };
    Some(format!(
        "**Run {}**: it lost nothing when killed ({}), and of the services that lost nothing it takes the least CPU. \
         {after}",
        best.kind.name(),
        best.killed?.in_words()
    ))
}

fn cheapest(ranked: &[Candidate]) -> Option<String> {
    let candidate = ranked.first().filter(|one| one.cpu.is_some())?;
    let fate = match candidate.killed {
        Some(account) if account.gone => {
            format!("**it did not come back when killed**: {}", account.in_words())
        }
        Some(account) if account.lost > 0 => {
            format!("**it loses data when killed**: {}", account.in_words())
        }
        Some(_) => "it lost nothing when killed".to_owned(),
        None => "what it loses when killed was not measured".to_owned(),
    };
    let what = candidate.kind.describe();
    Some(format!("Cheapest of all by CPU: {}; {fate}. What it is: {what}.", candidate.with_cpu()))
}

fn losers(ranked: &[Candidate]) -> Option<String> {
    let lost = |one: &Candidate| {
        let account = one.killed.filter(|account| account.lost > 0)?;
        Some(format!("**{}** ({}), {}", one.kind.name(), one.cpu_in_words(), account.in_words()))
    };
    let losers: Vec<String> = ranked.iter().filter_map(lost).collect();
    (!losers.is_empty())
        .then(|| format!("Loses data when killed, the cheapest first: {}.", losers.join("; ")))
}
