//! The report: ratios first, absolute figures second, the machine on top; Markdown for people, JSON with every sample.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::account::Account;
use crate::cases::{Case, WARM_UP_SECONDS, thousands};
use crate::consumer::{Binaries, Kind};
use crate::kill;
use crate::machine::Machine;
use crate::page;
use crate::trial::{QUIET, QUIET_LIMITED, Trial};
use lab_stand_ins::tally;

/// A floor above this share of Node's CPU is not one.
const FLOOR_MAX: f64 = 0.2;
/// What a quiet machine does besides.
pub(crate) const OTHERS_CORES_MAX: f64 = 0.1;

/// What has been measured so far.
#[derive(Serialize)]
pub(crate) struct Report {
    machine: Machine,
    /// Name, and what it is.
    consumers: Vec<(&'static str, &'static str)>,
    /// Consumers that could not be had, and why.
    missing: BTreeMap<&'static str, String>,
    trials: Vec<Trial>,
    #[serde(skip)]
    cases: Vec<Case>,
    #[serde(skip)]
    folder: PathBuf,
}

/// One figure over the repetitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Figure {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, least, most })
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
}

type Column = (&'static str, fn(&Trial) -> Option<f64>, usize);

/// Compared; more is worse, but for the last one.
const RATIOS: [Column; 8] = [
    ("CPU a message", |t| Some(t.cpu_us_per_message), 2),
    ("memory", |t| Some(t.rss_peak_mib), 1),
    ("flush p50", |t| t.flush_seen_ms.map(|ms| ms.0), 1),
    ("flush p99", |t| t.flush_seen_ms.map(|ms| ms.1), 1),
    ("engine CPU a row", |t| t.engine_cpu_us_per_row, 2),
    ("of it user", |t| t.engine_user_us_per_row, 2),
    ("parsing alone", |t| t.parsing_us_per_row, 3),
    ("rows/s (more is better)", |t| t.stored_per_second, 0),
];

/// What the first table, the README's, shows of which case.
type Headline = (&'static str, &'static str, fn(&Trial) -> Option<f64>, usize, &'static str);

const HEADLINES: [Headline; 6] = [
    ("CPU a message: 20k/s QoS 1 → ClickHouse", "engine-20k-qos1", |t| Some(t.cpu_us_per_message), 1, "µs"),
    ("50k/s QoS 0 → null sink", "sink-50k-qos0", |t| Some(t.cpu_us_per_message), 1, "µs"),
    ("memory there", "sink-50k-qos0", |t| Some(t.rss_peak_mib), 1, "MiB"),
    ("flush p50 there", "sink-50k-qos0", |t| t.flush_seen_ms.map(|ms| ms.0), 2, "ms"),
    ("p99", "sink-50k-qos0", |t| t.flush_seen_ms.map(|ms| ms.1), 1, "ms"),
    (
        "ceiling: firehose → null sink",
        "ceiling-qos0",
        |t| t.stored_per_second.map(|rows| rows / 1e3),
        0,
        "k/s",
    ),
];

/// Cases that differ in one thing, by the beginning of their names.
const SERIES: [(&str, &str); 2] =
    [("fleet-", "CPU a message as the fleet grows"), ("members-", "CPU a message as members join")];

const ABSOLUTE: [Column; 17] = [
    ("CPU µs/message", |t| Some(t.cpu_us_per_message), 2),
    ("% of a core", |t| Some(t.cpu_percent_of_core), 1),
    ("peak RSS MiB", |t| Some(t.rss_peak_mib), 1),
    ("RSS MiB/10 min", |t| t.rss_mib_per_ten_minutes, 1),
    ("flush p50 ms, own", |t| t.flush_own_ms.map(|ms| ms.0), 1),
    ("p99", |t| t.flush_own_ms.map(|ms| ms.1), 1),
    ("flush p50 ms, seen", |t| t.flush_seen_ms.map(|ms| ms.0), 1),
    ("p99", |t| t.flush_seen_ms.map(|ms| ms.1), 1),
    ("fresh p50 ms", |t| t.freshness_ms.map(|ms| ms.0), 0),
    ("p99", |t| t.freshness_ms.map(|ms| ms.1), 0),
    ("rows/s", |t| t.stored_per_second, 0),
    ("store CPU µs/row", |t| t.store_cpu_us_per_row, 2),
    ("engine's own", |t| t.engine_cpu_us_per_row, 2),
    ("of it user", |t| t.engine_user_us_per_row, 2),
    ("parsing", |t| t.parsing_us_per_row, 3),
    ("merged rows/row", |t| t.merged_rows_per_row, 1),
    ("rows/insert", |t| t.rows_per_insert, 0),
];

impl Report {
    pub(crate) fn new(folder: &Path, cases: &[Case], binaries: &Binaries) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let asked = |kind: &Kind| cases.iter().any(|case| case.kinds.contains(kind));
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(asked).collect();
        let missing = |kind: &Kind| Some((kind.name(), binaries.missing(*kind)?.to_owned()));
        Ok(Self {
            machine: Machine::here(binaries.versions()),
            consumers: kinds.iter().map(|kind| (kind.name(), kind.describe())).collect(),
            missing: kinds.iter().filter_map(missing).collect(),
            trials: Vec::new(),
            cases: cases.to_vec(),
            folder: folder.to_owned(),
        })
    }

    /// Of steps that nobody took.
    #[cfg(test)]
    pub(crate) fn made_by_hand(machine: Machine, cases: &[Case], trials: Vec<Trial>) -> Self {
        let consumers = Kind::ALL.map(|kind| (kind.name(), kind.describe())).to_vec();
        let (missing, folder) = (BTreeMap::new(), PathBuf::new());
        Self { machine, consumers, missing, trials, cases: cases.to_vec(), folder }
    }

    /// Adds a step, and writes everything down.
    pub(crate) fn add(&mut self, trial: Trial) -> Result<()> {
        if let Some(version) = &trial.engine_version {
            self.machine.versions.insert("ClickHouse engine".to_owned(), version.clone());
        }
        self.trials.push(trial);
        let (markdown, json) = (self.markdown(), serde_json::to_string_pretty(self)?);
        let page = page::of(self);
        for name in [self.name(), "latest".to_owned()] {
            std::fs::write(self.folder.join(format!("{name}.md")), &markdown)?;
            std::fs::write(self.folder.join(format!("{name}.json")), &json)?;
            std::fs::write(self.folder.join(format!("{name}.html")), &page)?;
        }
        Ok(())
    }

    /// Of the Markdown file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.md", self.name()))
    }

    /// Every consumer of every case that can be had has a figure that counts.
    pub(crate) fn is_complete(&self) -> bool {
        self.cases.iter().all(|case| {
            let had = |row: &&Row<'_>| !self.missing.contains_key(row.kind.name());
            self.rows(case).iter().filter(had).all(|row| !row.good.is_empty())
        })
    }

    pub(crate) fn cases(&self) -> &[Case] {
        &self.cases
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Why a consumer cannot be had.
    pub(crate) fn missing_because(&self, kind: Kind) -> Option<&str> {
        self.missing.get(kind.name()).map(String::as_str)
    }

    fn name(&self) -> String {
        self.machine.date.replace(':', "").trim_end_matches('Z').replace('T', "-")
    }

    pub(crate) fn trials_of(&self, case: &Case, kind: Kind) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |trial| trial.case == case.name && trial.consumer == kind.name())
    }

    pub(crate) fn rows(&self, case: &Case) -> Vec<Row<'_>> {
        let mut kinds = case.kinds.clone();
        kinds.sort_unstable();
        let row = |kind| Row {
            kind,
            good: self.trials_of(case, kind).filter(|trial| trial.refused.is_empty()).collect(),
        };
        kinds.into_iter().map(row).collect()
    }

    /// The whole report.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        self.write_head(&mut out).expect("writing to a String");
        self.write_headlines(&mut out).expect("writing to a String");
        for case in &self.cases {
            self.write_case(case, &mut out).expect("writing to a String");
        }
        self.write_series(&mut out).expect("writing to a String");
        self.write_end(&mut out).expect("writing to a String");
        out
    }

    fn write_head(&self, out: &mut String) -> std::fmt::Result {
        let Machine { date, cpu, cores, memory_mib, kernel, versions } = &self.machine;
        writeln!(out, "# milepost beside its peers, {date}\n")?;
        writeln!(
            out,
            "{cores} cores ({cpu}), {memory_mib} MiB, Linux {kernel}. Everything on this one machine."
        )?;
        let versions: Vec<String> = versions
            .iter()
            .map(|(name, version)| format!("{name} {}", version.trim_start_matches("milepost ")))
            .collect();
        writeln!(out, "{}.\n", versions.join(" · "))?;
        for (name, what) in &self.consumers {
            writeln!(out, "- **{name}**: {what}")?;
        }
        Ok(())
    }

    /// The most important figures of several cases: the ratio, then the figure itself.
    fn write_headlines(&self, out: &mut String) -> std::fmt::Result {
        let known: Vec<(&Headline, Vec<Row<'_>>)> = HEADLINES
            .iter()
            .filter_map(|headline| Some((headline, self.cases.iter().find(|case| case.name == headline.1)?)))
            .map(|(headline, case)| (headline, self.rows(case)))
            .collect();
        let Some((_, rows)) = known.first() else { return Ok(()) };
        let Some(base) = rows.first().map(|row| row.kind) else { return Ok(()) };
        let killed = self.cases.iter().find(|case| case.kills > 0).map(|case| self.rows(case));
        let names = known.iter().map(|(headline, _)| headline.0).chain(["lost, twice"]);
        let names = names.chain(killed.iter().map(|_| "lost, twice after kill -9"));
        writeln!(out)?;
        write_head_of_table(&format!("{} = 1", base.name()), names, out)?;
        for kind in rows.iter().map(|row| row.kind) {
            write!(out, "| {} |", kind.name())?;
            for ((_, _, of, digits, unit), rows) in &known {
                let row = |kind: Kind| rows.iter().find(|row| row.kind == kind);
                let ratio = row(kind).zip(row(base)).and_then(|(row, base)| row.ratio_to(base, of));
                let figure = row(kind).and_then(|row| row.figure(of));
                match (ratio, figure) {
                    (Some(Figure { median: ratio, .. }), Some(Figure { median, .. })) => {
                        write!(out, " {ratio:.2} ({median:.digits$} {unit}) |")?;
                    }
                    _ => write!(out, " – |")?,
                }
            }
            let of_kind = |trial: &&Trial| trial.consumer == kind.name();
            let judged = self.trials.iter().filter(of_kind);
            let judged = judged.filter(|trial| known.iter().any(|(headline, _)| headline.1 == trial.case));
            match Account::of(judged) {
                Some(Account { lost, twice, .. }) => write!(out, " {lost}, {twice} |")?,
                None => write!(out, " – |")?,
            }
            if let Some(killed) = &killed {
                let row = killed.iter().find(|row| row.kind == kind);
                write!(out, " {} |", kill::in_a_cell(row.map_or(&[], |row| &row.good)))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_case(&self, case: &Case, out: &mut String) -> std::fmt::Result {
        let rows = self.rows(case);
        writeln!(out, "\n## {}\n", case.title)?;
        if case.kills > 0 {
            kill::write_table(case, rows.iter().map(|row| (row.kind, &row.good[..])), out)?;
        } else {
            writeln!(
                out,
                "`--only {}`: {} drivers; {} s a step after {WARM_UP_SECONDS} s of warm-up, {}; medians, ratios by \
                 pairs of the same repetition (least–most).\n",
                case.name,
                thousands(case.drivers),
                case.seconds,
                repetitions_in_words(case.repetitions)
            )?;
            write_ratios(&rows, out)?;
            write_absolute(&rows, out)?;
            write_notes(case, &rows, out)?;
        }
        for kind in &case.kinds {
            for trial in self.trials_of(case, *kind).filter(|trial| !trial.refused.is_empty()) {
                let (name, repetition) = (kind.name(), trial.repetition + 1);
                writeln!(
                    out,
                    "- Not counted: {name}, repetition {repetition}: {}",
                    trial.refused.join("; ")
                )?;
            }
        }
        Ok(())
    }

    /// What grows with what, over several cases.
    fn write_series(&self, out: &mut String) -> std::fmt::Result {
        for (prefix, title) in SERIES {
            let cases: Vec<&Case> = self.cases.iter().filter(|case| case.name.starts_with(prefix)).collect();
            let Some(first) = cases.first().filter(|_| cases.len() > 1) else { continue };
            let name = |case: &&Case| case.name.clone();
            writeln!(out, "\n## {title}\n")?;
            let names: Vec<String> = cases.iter().map(name).collect();
            write_head_of_table(&format!("{} = 1", first.name), names.iter().map(String::as_str), out)?;
            let cpu = |case: &Case, kind: Kind| {
                let row = self.rows(case).into_iter().find(|row| row.kind == kind)?;
                Some(row.figure(|t| Some(t.cpu_us_per_message))?.median)
            };
            for kind in &first.kinds {
                let ratio = |case: &&Case| Some(cpu(case, *kind)? / cpu(first, *kind)?);
                let ratios: Vec<String> = cases
                    .iter()
                    .map(|case| ratio(case).map_or("–".to_owned(), |r| format!("{r:.2}")))
                    .collect();
                writeln!(out, "| {} | {} |", kind.name(), ratios.join(" | "))?;
            }
        }
        Ok(())
    }

    fn write_end(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## Not measured\n")?;
        self.not_measured().iter().try_for_each(|line| writeln!(out, "- {line}"))
    }

    /// Steps that were asked for.
    pub(crate) fn planned(&self) -> usize {
        self.cases.iter().map(|case| case.kinds.len() * case.repetitions as usize).sum()
    }

    /// What is missing from this report, and what its figures do not say.
    pub(crate) fn not_measured(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.missing.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        let planned = self.planned();
        if self.trials.len() < planned {
            let left = planned - self.trials.len();
            lines.push(format!("{left} of {planned} steps: not reached, or no such consumer"));
        }
        lines.extend([
            "EMQX, a network between the machines, TLS, and more than this machine's cores.".to_owned(),
            "What async_insert does: the local engine (chDB) inserts each request at once, whatever the setting, so the \
             published consumers differ here in their acknowledgements alone."
                .to_owned(),
            "The generator, the broker and the store share the cores with the consumer: only ratios carry over."
                .to_owned(),
            format!(
                "`lost` is what was not stored once the store had stood still for {} s after the load (under the pod's \
                 limits {} s), `twice` what is there again: by sets of (driver, seq), but for the Null table and fleets \
                 of more than {} drivers, where counts are compared.",
                QUIET.as_secs(),
                QUIET_LIMITED.as_secs(),
                thousands(tally::DRIVERS_MAX)
            ),
            "`flush seen`: from a request's first byte to its answer, at a proxy before the engine, or in the sink; `own`: \
             by the consumer's histogram, warm-up and all."
                .to_owned(),
            "`engine's own`: the CPU of ClickHouse by its `system.events`, merges included, its HTTP interface not: locally \
             that is a program of ours. `store` is the whole process. Both a row of the inserts answered meanwhile. \
             `parsing`: the same without what inserts of one row cost it, measured right after the load."
                .to_owned(),
        ]);
        lines
    }
}

pub(crate) fn repetitions_in_words(repetitions: impl Into<u64>) -> String {
    match repetitions.into() {
        1 => "one repetition".to_owned(),
        more => format!("{more} repetitions"),
    }
}

/// Against milepost, or whoever is first.
fn write_ratios(rows: &[Row<'_>], out: &mut String) -> std::fmt::Result {
    let Some(base) = rows.iter().find(|row| !row.good.is_empty()).filter(|_| rows.len() > 1) else {
        return Ok(());
    };
    let columns: Vec<&Column> = RATIOS.iter().filter(|(_, of, _)| base.figure(of).is_some()).collect();
    write_head_of_table(&format!("{} = 1", base.kind.name()), columns.iter().map(|column| column.0), out)?;
    for row in rows {
        write!(out, "| {} |", row.kind.name())?;
        for (_, of, _) in &columns {
            match row.ratio_to(base, of) {
                Some(Figure { median, least, most }) if row.good.len() > 1 && row.kind != base.kind => {
                    write!(out, " {median:.2} ({least:.2}–{most:.2}) |")?;
                }
                Some(Figure { median, .. }) => write!(out, " {median:.2} |")?,
                None => write!(out, " – |")?,
            }
        }
        writeln!(out)?;
    }
    writeln!(out)
}

fn write_absolute(rows: &[Row<'_>], out: &mut String) -> std::fmt::Result {
    let known = |column: &&Column| rows.iter().any(|row| row.figure(column.1).is_some());
    let columns: Vec<&Column> = ABSOLUTE.iter().filter(known).collect();
    let names = columns.iter().map(|column| column.0).chain(["messages", "lost", "twice"]);
    write_head_of_table("absolute, median (least–most)", names, out)?;
    for row in rows {
        write!(out, "| {} |", row.kind.name())?;
        for (_, of, digits) in &columns {
            match row.figure(of) {
                Some(Figure { median, least, most }) if row.good.len() > 1 => {
                    write!(out, " {median:.digits$} ({least:.digits$}–{most:.digits$}) |")?;
                }
                Some(Figure { median, .. }) => write!(out, " {median:.digits$} |")?,
                None => write!(out, " – |")?,
            }
        }
        match Account::of(row.good.iter().copied()) {
            Some(Account { messages, lost, twice, .. }) => writeln!(out, " {messages} | {lost} | {twice} |")?,
            None => writeln!(out, " – | – | – |")?,
        }
    }
    writeln!(out)
}

fn write_head_of_table<'a>(
    corner: &str,
    names: impl Iterator<Item = &'a str>,
    out: &mut String,
) -> std::fmt::Result {
    let names: Vec<&str> = names.collect();
    writeln!(out, "| {corner} | {} |", names.join(" | "))?;
    writeln!(out, "|---|{}", "--:|".repeat(names.len()))
}

fn write_notes(case: &Case, rows: &[Row<'_>], out: &mut String) -> std::fmt::Result {
    let row = |kind: Kind| rows.iter().find(|row| row.kind == kind);
    let cpu = |trial: &Trial| Some(trial.cpu_us_per_message);
    let share = row(Kind::Floor).zip(row(Kind::Node)).and_then(|(floor, node)| floor.ratio_to(node, cpu));
    if let Some(Figure { median: share, .. }) = share {
        let verdict = if share <= FLOOR_MAX { "a floor" } else { "NOT A FLOOR here" };
        writeln!(out, "- The floor takes {share:.2} of Node's CPU ({FLOOR_MAX} at most): {verdict}.")?;
    }
    let others = rows.iter().flat_map(|row| &row.good).map(|trial| trial.others_cores).fold(0.0, f64::max);
    if others > OTHERS_CORES_MAX {
        writeln!(
            out,
            "- OTHER PROCESSES took up to {others:.1} cores meanwhile: repeat this on a quiet machine."
        )?;
    }
    for trial in rows.iter().flat_map(|row| &row.good) {
        if case.members > 1 {
            let shares: Vec<String> =
                trial.shares.iter().map(|share| format!("{:.1} %", share * 100.0)).collect();
            writeln!(out, "- {}: shares of the members: {}", trial.consumer, shares.join(", "))?;
        }
        if let Some(why) = &trial.unlimited {
            writeln!(
                out,
                "- {}: limits could not be set ({why}): compare with 25 % of a core and 128 MiB",
                trial.consumer
            )?;
        }
    }
    let starts: Vec<String> = rows
        .iter()
        .filter_map(|row| Some((row.kind, row.figure(|t| Some(t.start_to_subscribed_ms))?)))
        .map(|(kind, figure)| format!("{} {:.0} ms", kind.name(), figure.median))
        .collect();
    writeln!(out, "- From start to subscribed: {}", starts.join(", "))
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
