//! Whom to run, and why: the top of the page, to be read within a minute.
//!
//! Cost alone would recommend whoever acknowledges what it then loses. So a kill -9 stands in each row, as it was
//! measured, or as not measured; and only who lost nothing is recommended.

use lab_harness::table::Table;

use super::questions::{busiest, command};
use crate::cases::Case;
use crate::kind::Kind;
use crate::report::{CPU, Measured, Of, Report};
use crate::trial::Account;
use crate::words::{short, thousands, times};

/// The case in which consumers are killed.
pub(super) const KILLED: &str = "kill-9";

/// What is compared by cost: its name and unit, the figure, and the cases that have it, the best first.
type Cost = (&'static str, &'static str, Of, [&'static str; 2]);
const COSTS: [Cost; 3] = [
    ("CPU a message", "µs", CPU, ["engine-", "sink-"]),
    ("memory, peak", "MiB", |trial| Some(trial.rss_peak_mib), ["sink-", "engine-"]),
    ("ceiling", "rows/s", |trial| trial.stored_per_second, ["ceiling-qos0", "ceiling-"]),
];

/// A row of the tables.
struct Candidate {
    kind: Kind,
    /// Figure and ratio to milepost's, of [`COSTS`].
    costs: [Option<(f64, Option<f64>)>; 3],
    /// What it dropped at the ceiling.
    at_ceiling: Option<Account>,
    killed: Option<Account>,
    /// At QoS 1, where nothing should be lost.
    alive: Option<Account>,
    /// At QoS 0, where a consumer may drop what it cannot take.
    unacknowledged: Option<Account>,
}

impl Candidate {
    /// As far as it was measured, it kept what it acknowledged.
    fn kept_all(&self) -> bool {
        self.killed.is_some_and(|account| account.lost == 0 && !account.gone)
            && self.alive.is_none_or(|account| account.lost == 0)
    }

    fn cpu_ratio(&self) -> Option<f64> {
        self.costs[0]?.1
    }

    fn cpu_in_words(&self) -> String {
        let known = |ratio| format!("{} milepost's CPU", times(ratio));
        self.cpu_ratio().map_or("CPU not measured".to_owned(), known)
    }

    fn with_cpu(&self) -> String {
        format!("{} ({})", self.kind.name(), self.cpu_in_words())
    }

    fn cost(&self, index: usize) -> String {
        let unit = COSTS[index].1;
        let lost = self.at_ceiling.filter(|account| index == 2 && account.lost > 0);
        let lost =
            lost.map(|a| format!(" · ✗ {} of {} lost there", thousands(a.lost), thousands(a.messages)));
        let cost = match self.costs[index] {
            Some((figure, Some(ratio))) => format!("**{}** ({} {unit})", times(ratio), short(figure)),
            Some((figure, None)) => format!("{} {unit}", short(figure)),
            None => "? not measured".to_owned(),
        };
        cost + &lost.unwrap_or_default()
    }

    /// A sign and words: the page's colour only repeats them.
    fn judged(&self) -> String {
        let told = |sign: &str, account: Account| format!("{sign} · {}", account.in_words());
        let killed = match self.killed {
            None => "? not measured".to_owned(),
            Some(account) if account.gone => told("✗ did not come back when killed", account),
            Some(account) if account.lost > 0 => told("✗ loses data when killed", account),
            Some(account) => told("✓ lost nothing", account),
        };
        match self.alive.filter(|account| account.lost > 0) {
            Some(alive) => format!("{killed} · {}", told("✗ loses data unkilled, at QoS 1", alive)),
            None => killed,
        }
    }
}

/// Everybody that was asked for.
pub(super) struct Summary {
    candidates: Vec<Candidate>,
    cases: [Option<Case>; 3],
}

impl Summary {
    pub(super) fn of(report: &Report) -> Self {
        let some = |case: &Case| report.rows(case).iter().any(|row| !row.good.is_empty());
        let cases = COSTS.map(|(.., prefixes)| {
            let best = |prefix: &&str| busiest(report, |case| case.name.starts_with(*prefix));
            prefixes.iter().filter_map(best).find(some)
        });
        let measured: Vec<Vec<Measured>> = COSTS
            .iter()
            .zip(&cases)
            .map(|((_, _, of, _), case)| case.as_ref().map_or(Vec::new(), |case| report.measured(case, *of)))
            .collect();
        let cost = |index: usize, kind: Kind| {
            measured[index].iter().find(|one| one.kind == kind).map(|one| (one.figure.median, one.ratio))
        };
        let account = |kind: Kind, chosen: &dyn Fn(&Case) -> bool| {
            let cases = report.cases.iter().filter(|case| chosen(case));
            Account::of(cases.flat_map(|case| report.trials_of(case, kind)))
        };
        let asked = |kind: &Kind| report.cases.iter().any(|case| case.kinds.contains(kind));
        let candidates = Kind::ALL.into_iter().filter(asked).map(|kind| Candidate {
            kind,
            costs: [0, 1, 2].map(|index| cost(index, kind)),
            at_ceiling: account(kind, &|case| cases[2].as_ref().is_some_and(|it| it.name == case.name)),
            killed: account(kind, &|case| case.name == KILLED),
            alive: account(kind, &|case| case.name != KILLED && case.qos == 1),
            unacknowledged: account(kind, &|case| case.name != KILLED && case.qos == 0),
        });
        Self { candidates: candidates.collect(), cases }
    }

    /// What each costs.
    pub(super) fn costs(&self) -> Table {
        let case = |index: usize| {
            self.cases[index].as_ref().map_or(String::new(), |case| format!(" `{}`", case.name))
        };
        let [cpu, memory, ceiling] = [0, 1, 2].map(|index| format!("{}{}", COSTS[index].0, case(index)));
        let fixed =
            ["consumer", "killed with kill -9", &cpu, &memory, &ceiling, "acknowledges", "what it is"];
        let mut table = Table::of(fixed);
        table.rows.extend(self.candidates.iter().map(|one| {
            let [cpu, memory, ceiling] = [0, 1, 2].map(|index| one.cost(index));
            let (name, acknowledges, what) = (one.kind.name(), one.kind.acknowledges(), one.kind.what());
            vec![
                name.to_owned(),
                one.judged(),
                cpu,
                memory,
                ceiling,
                acknowledges.to_owned(),
                what.to_owned(),
            ]
        }));
        table
    }

    /// What each promises, and what was found.
    pub(super) fn guarantees(&self) -> Table {
        let found = |account: Option<Account>| account.map_or("not measured".to_owned(), |a| a.in_words());
        let head = "consumer|acknowledges, by its own account|killed with kill -9|not killed, QoS 1|not killed, QoS 0";
        let mut table = Table::of(head.split('|'));
        table.rows.extend(self.candidates.iter().map(|one| {
            let (name, acknowledges) = (one.kind.name().to_owned(), one.kind.acknowledges().to_owned());
            vec![name, acknowledges, one.judged(), found(one.alive), found(one.unacknowledged)]
        }));
        table
    }

    /// What follows from the figures; nothing of it is known before.
    pub(super) fn verdict(&self) -> Vec<String> {
        let cpu = |one: &&Candidate| one.cpu_ratio().unwrap_or(f64::INFINITY);
        let mut ranked: Vec<&Candidate> = self.candidates.iter().collect();
        ranked.sort_by(|one, other| cpu(one).total_cmp(&cpu(other)));
        [recommended(&ranked), cheapest(&ranked), losers(&ranked)].into_iter().flatten().collect()
    }
}

/// The cheapest that kept its promise; the floor is none to run, because it does not reconnect.
fn recommended(ranked: &[&Candidate]) -> Option<String> {
    if ranked.iter().all(|candidate| candidate.killed.is_none()) {
        return Some(format!(
            "**Whom to run cannot be said from this run alone**: what a kill -9 loses was not measured (`{}`).",
            command(&[KILLED])
        ));
    }
    let service = |one: &&&Candidate| one.kind != Kind::Floor && one.cpu_ratio().is_some() && one.kept_all();
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

fn cheapest(ranked: &[&Candidate]) -> Option<String> {
    let candidate = ranked.first().filter(|one| one.cpu_ratio().is_some())?;
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

fn losers(ranked: &[&Candidate]) -> Option<String> {
    let lost = |one: &&Candidate| {
        let account = one.killed.filter(|account| account.lost > 0)?;
        Some(format!("**{}** ({}), {}", one.kind.name(), one.cpu_in_words(), account.in_words()))
    };
    let losers: Vec<String> = ranked.iter().filter_map(lost).collect();
    (!losers.is_empty())
        .then(|| format!("Loses data when killed, the cheapest first: {}.", losers.join("; ")))
}
