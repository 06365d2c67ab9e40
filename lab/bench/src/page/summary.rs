//! Who to run, and why: the top of the page, to be read within a minute.
//!
//! Cost alone would recommend whoever acknowledges what it then loses. So a kill -9 stands in each row, as it was
//! measured, or as not measured; and only who lost nothing is recommended.

use maud::{Markup, html};

use super::axis::{short, times};
use super::measured::{CPU, Measured, Of, busiest, mark, measured};
use super::{command, plot, prose};
use crate::account::Account;
use crate::cases::{Case, thousands};
use crate::consumer::Kind;
use crate::report::Report;

/// The case in which consumers are killed.
const KILLED: &str = "kill-9";

/// A row of the summary.
struct Candidate {
    kind: Kind,
    cpu: Option<(f64, Option<f64>)>,
    memory: Option<(f64, Option<f64>)>,
    ceiling: Option<(f64, Option<f64>)>,
    /// What it dropped there.
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
        self.cpu.and_then(|(_, ratio)| ratio)
    }

    fn cpu_in_words(&self) -> String {
        self.cpu_ratio()
            .map_or("CPU not measured".to_owned(), |ratio| format!("{} milepost's CPU", times(ratio)))
    }

    fn with_cpu(&self) -> String {
        format!("{} ({})", self.kind.name(), self.cpu_in_words())
    }
}

/// What the summary compares.
pub(super) struct Summary {
    candidates: Vec<Candidate>,
    cpu: Option<Case>,
    memory: Option<Case>,
    ceiling: Option<Case>,
}

const MEMORY: Of = |trial| Some(trial.rss_peak_mib);
const CEILING: Of = |trial| trial.stored_per_second;

impl Summary {
    pub(super) fn of(report: &Report) -> Self {
        let some = |case: &Case| report.rows(case).iter().any(|row| !row.good.is_empty());
        let case_of = |prefixes: [&str; 2]| {
            let best = |prefix: &&str| busiest(report, |case| case.name.starts_with(*prefix));
            prefixes.iter().filter_map(best).find(some)
        };
        let cpu = case_of(["engine-", "sink-"]);
        let memory = case_of(["sink-", "engine-"]);
        let ceiling = case_of(["ceiling-qos0", "ceiling-"]);
        let figures = |case: &Option<Case>, of: Of| -> Vec<Measured> {
            case.as_ref().map(|case| measured(report, case, of)).unwrap_or_default()
        };
        let (cpus, memories, ceilings) =
            (figures(&cpu, CPU), figures(&memory, MEMORY), figures(&ceiling, CEILING));
        let find = |all: &[Measured], kind: Kind| {
            all.iter().find(|one| one.kind == kind).map(|one| (one.figure.median, one.ratio))
        };
        let asked = |kind: &Kind| report.cases().iter().any(|case| case.kinds.contains(kind));
        let account = |kind: Kind, chosen: &dyn Fn(&Case) -> bool| {
            let cases = report.cases().iter().filter(|case| chosen(case));
            Account::of(cases.flat_map(|case| report.trials_of(case, kind)))
        };
        let candidates = Kind::ALL.into_iter().filter(asked).map(|kind| Candidate {
            kind,
            cpu: find(&cpus, kind),
            memory: find(&memories, kind),
            ceiling: find(&ceilings, kind),
            at_ceiling: account(kind, &|case| ceiling.as_ref().is_some_and(|it| it.name == case.name)),
            killed: account(kind, &|case| case.name == KILLED),
            alive: account(kind, &|case| case.name != KILLED && case.qos == 1),
            unacknowledged: account(kind, &|case| case.name != KILLED && case.qos == 0),
        });
        let candidates = candidates.collect();
        Self { candidates, cpu, memory, ceiling }
    }

    /// A few sentences, then a row a consumer.
    pub(super) fn show(&self) -> Markup {
        html! {
            section #who {
                h2 { "Whom to run, and why" }
                ul.verdict { @for sentence in self.verdict() { li { (prose(&sentence)) } } }
                div.scroll tabindex="0" role="region" aria-label="One row a consumer" {
                    table.cards {
                        thead { tr {
                            th scope="col" { "consumer" }
                            th scope="col" { "killed with kill -9" }
                            (head("CPU a message", self.cpu.as_ref()))
                            (head("memory, peak", self.memory.as_ref()))
                            (head("ceiling", self.ceiling.as_ref()))
                            th scope="col" { "acknowledges" }
                            th scope="col" { "what it is" }
                        } }
                        tbody { @for candidate in &self.candidates { (row(candidate)) } }
                    }
                }
                p.note { "× is against milepost in the same repetition, the median; in brackets the figure itself." }
            }
        }
    }

    /// What follows from the figures; nothing of it is known before.
    fn verdict(&self) -> Vec<String> {
        let cpu = |one: &&Candidate| one.cpu_ratio().unwrap_or(f64::INFINITY);
        let mut ranked: Vec<&Candidate> = self.candidates.iter().collect();
        ranked.sort_by(|one, other| cpu(one).total_cmp(&cpu(other)));
        let all = [self.recommended(&ranked), cheapest(&ranked), losers(&ranked)];
        all.into_iter().flatten().collect()
    }

    /// The cheapest that kept its promise; the floor is none to run, because it does not reconnect.
    fn recommended(&self, ranked: &[&Candidate]) -> Option<String> {
        if self.candidates.iter().all(|candidate| candidate.killed.is_none()) {
            return Some(format!(
                "**Whom to run cannot be said from this run alone**: what a kill -9 loses was not measured (`{}`).",
                command(&[KILLED])
            ));
        }
        let service = |one: &&&Candidate| one.kind != Kind::Floor && one.cpu_ratio().is_some();
        let mut kept = ranked.iter().filter(service).filter(|one| one.kept_all());
        let best = kept.next()?;
        let others: Vec<String> = kept.map(|one| one.with_cpu()).collect();
        let after = if others.is_empty() {
            "No other service is known to have lost nothing.".to_owned()
        } else {
            format!("After it: {}.", others.join(", "))
        };
        Some(format!(
            "**Run {}**: it lost nothing when killed ({}), and of the services that lost nothing it takes the least \
             CPU. {after}",
            best.kind.name(),
            best.killed?.in_words()
        ))
    }

    /// What each promises, and what was found.
    pub(super) fn show_guarantees(&self) -> Markup {
        let found = |account: &Option<Account>| account.map_or("not measured".to_owned(), |a| a.in_words());
        html! {
            section #guarantees {
                h2 { "What each promises, and what was found" }
                div.scroll tabindex="0" role="region" aria-label="Guarantees" {
                    table.cards {
                        thead { tr {
                            th scope="col" { "consumer" }
                            th scope="col" { "acknowledges, by its own account" }
                            th scope="col" { "killed with kill -9" }
                            th scope="col" { "not killed, QoS 1" }
                            th scope="col" { "not killed, QoS 0" }
                        } }
                        tbody {
                            @for candidate in &self.candidates {
                                tr {
                                    (name(candidate.kind))
                                    td data-label="acknowledges" { (candidate.kind.acknowledges()) }
                                    td data-label="killed with kill -9" { (badge(candidate)) }
                                    td data-label="not killed, QoS 1" { (found(&candidate.alive)) }
                                    td data-label="not killed, QoS 0" { (found(&candidate.unacknowledged)) }
                                }
                            }
                        }
                    }
                }
                p.note {
                    "Over all repetitions that count. At QoS 0 nobody acknowledges: "
                    "what a consumer cannot take is dropped. To reproduce: " code { (command(&[KILLED])) }
                }
            }
        }
    }
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

fn head(what: &str, case: Option<&Case>) -> Markup {
    html! { th scope="col" { (what) @if let Some(case) = case { br; code { (case.name) } } } }
}

fn name(kind: Kind) -> Markup {
    let mark = mark(kind);
    html! {
        th scope="row" {
            svg.key viewBox="-7 -7 14 14" aria-hidden="true" {
                g class=(plot::class(mark)) { (plot::shape(mark, 0.0, 0.0, mark.name)) }
            }
            (mark.name)
        }
    }
}

fn row(candidate: &Candidate) -> Markup {
    html! {
        tr {
            (name(candidate.kind))
            td data-label="killed with kill -9" { (badge(candidate)) }
            td data-label="CPU a message" { (ratio(candidate.cpu, "µs")) }
            td data-label="memory, peak" { (ratio(candidate.memory, "MiB")) }
            td data-label="ceiling" {
                (ratio(candidate.ceiling, "rows/s"))
                @if let Some(account) = candidate.at_ceiling.filter(|account| account.lost > 0) {
                    " " span.bad { "✗ " (thousands(account.lost)) " of " (thousands(account.messages)) " lost there" }
                }
            }
            td data-label="acknowledges" { (candidate.kind.acknowledges()) }
            td data-label="what it is" { (what(candidate.kind)) }
        }
    }
}

fn ratio(figure: Option<(f64, Option<f64>)>, unit: &str) -> Markup {
    html! {
        @match figure {
            Some((figure, Some(ratio))) => { span.figure { b { (times(ratio)) } " (" (short(figure)) " " (unit) ")" } },
            Some((figure, None)) => { span.figure { (short(figure)) " " (unit) } },
            None => { span.unknown { "not measured" } },
        }
    }
}

/// A sign and words: the colour only repeats them.
fn badge(candidate: &Candidate) -> Markup {
    html! {
        @match candidate.killed {
            None => { span.badge.unknown { "? not measured" } },
            Some(account) if account.gone => {
                span.badge.bad { "✗ did not come back when killed" } " " (account.in_words())
            },
            Some(account) if account.lost > 0 => {
                span.badge.bad { "✗ loses data when killed" } " " (account.in_words())
            },
            Some(account) => { span.badge.good { "✓ lost nothing" } " " (account.in_words()) },
        }
        @if let Some(account) = candidate.alive.filter(|account| account.lost > 0) {
            " " span.badge.bad { "✗ loses data unkilled, at QoS 1" } " " (account.in_words())
        }
    }
}

/// Its description, but for when it acknowledges.
fn what(kind: Kind) -> &'static str {
    let what = kind.describe();
    let what = what.find("PUBACK").map_or(what, |at| &what[..at]);
    what.trim_end_matches([' ', ',', ';', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_consumer_says_when_it_acknowledges() {
        for kind in Kind::ALL {
            assert!(kind.acknowledges().starts_with("PUBACK "), "{}: {}", kind.name(), kind.describe());
        }
    }
}
