//! Writes the report, as JSON and as Markdown tables: figures over repetitions, and ratios between
//! consumers.
//!
//! A ratio is computed within a repetition: its two steps ran within minutes of each other, so the
//! drift of the machine cancels out. Every ratio over several repetitions is printed with its
//! spread.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;

use lab_harness::table::Table;
use serde::Serialize;

use crate::cases::{Case, WARM_UP_SECONDS};
use crate::consumer::Binaries;
use crate::kind::Kind;
use crate::load::QUIET;
use crate::machine::Machine;
use crate::trial::{Kills, Trial};

/// Reads a figure from a step; `None` if the step does not have it.
type FigureOf = fn(&Trial) -> Option<f64>;

/// A column of the tables of costs.
struct Column {
    name: &'static str,
    figure_of: FigureOf,
    decimals: usize,
}

impl Column {
    const fn new(name: &'static str, figure_of: FigureOf, decimals: usize) -> Self {
        Self { name, figure_of, decimals }
    }
}

/// Largest share of Node's CPU that the floor may use. A floor above this share is not a useful
/// lower bound.
const FLOOR_MAX: f64 = 0.2;
/// Largest spread of a ratio, as a share of its median. A larger spread means a noisy machine.
const SPREAD_MAX: f64 = 0.25;

const CPU: FigureOf = |trial| Some(trial.cpu_us_per_message);
const MEMORY: FigureOf = |trial| Some(trial.rss_peak_mib);
const FLUSH_P50: FigureOf = |trial| trial.flush_ms.map(|(p50, _)| p50);
const FLUSH_P99: FigureOf = |trial| trial.flush_ms.map(|(_, p99)| p99);
const COLUMNS: [Column; 9] = [
    Column::new("CPU µs/message", CPU, 2),
    Column::new("of it kernel", |trial| Some(trial.kernel_us_per_message), 2),
    Column::new("peak RSS MiB", MEMORY, 1),
    Column::new("flush p50 ms", FLUSH_P50, 1),
    Column::new("flush p99", FLUSH_P99, 1),
    Column::new("fresh p50 ms", |trial| trial.freshness_ms.map(|(p50, _)| p50), 0),
    Column::new("fresh p99", |trial| trial.freshness_ms.map(|(_, p99)| p99), 0),
    Column::new("rows/s", |trial| trial.stored_per_second, 0),
    Column::new("start ms", |trial| Some(trial.start_to_subscribed_ms), 0),
];

/// Columns of the first table, which is in docs/results.md as well: case, column and unit.
const HEADLINES: [(&str, Column, &str); 6] = [
    ("engine-20k-qos1", Column::new("CPU a message: 20k/s QoS 1 → ClickHouse", CPU, 1), "µs"),
    ("sink-50k-qos0", Column::new("50k/s QoS 0 → null sink", CPU, 1), "µs"),
    ("sink-50k-qos0", Column::new("memory there", MEMORY, 1), "MiB"),
    ("sink-50k-qos0", Column::new("flush p50 there", FLUSH_P50, 2), "ms"),
    ("sink-50k-qos0", Column::new("p99", FLUSH_P99, 1), "ms"),
    (
        "ceiling-qos0",
        Column::new(
            "ceiling: firehose → null sink",
            |trial| trial.stored_per_second.map(|rows| rows / 1e3),
            0,
        ),
        "k/s",
    ),
];

const READING: &str = "Generator, broker and store share the cores with the consumer, so only ratios carry over to other \
    machines. `lost` counts the fixes that were not stored when the store had not grown for 4 s, `twice` those stored more than once: \
    both by sets of (driver, seq). `flush` is measured at a proxy in front of the engine, or in the sink, from a request's first byte to its \
    answer. Not measured: EMQX, a network, TLS, more than this machine's cores.";

/// The steps of a run, and the machine they ran on.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// Unavailable consumers, with the reason.
    missing: BTreeMap<&'static str, String>,
    trials: Vec<Trial>,
    #[serde(skip)]
    cases: Vec<Case>,
}

/// The median of a figure over the repetitions, with the least and the greatest value.
#[derive(Debug, Clone, Copy)]
struct Figure {
    median: f64,
    least: f64,
    most: f64,
    has_spread: bool,
}

impl Figure {
    fn from_values(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), least, most, has_spread: values.len() > 1 })
    }

    /// Formats the median, as in "12.30"; over several repetitions with its spread, as in "12.30
    /// (11.90–12.80)".
    fn text(self, decimals: usize) -> String {
        let Self { median, least, most, has_spread } = self;
        let spread = if has_spread {
            format!(" ({least:.decimals$}–{most:.decimals$})")
        } else {
            String::new()
        };
        format!("{median:.decimals$}{spread}")
    }

    /// Returns the spread of the repetitions, as a share of the median.
    fn relative_spread(self) -> f64 {
        (self.most - self.least) / self.median
    }
}

/// The steps of one consumer in one case, without the refused steps.
struct Row<'a> {
    kind: Kind,
    counted: Vec<&'a Trial>,
}

impl Row<'_> {
    fn figure(&self, figure_of: impl Fn(&Trial) -> Option<f64>) -> Option<Figure> {
        Figure::from_values(self.counted.iter().filter_map(|trial| figure_of(trial)).collect())
    }

    fn ratio_to(&self, base: &Self, figure_of: impl Fn(&Trial) -> Option<f64>) -> Option<Figure> {
        let ratio = |trial: &&Trial| {
            let paired = base.counted.iter().find(|other| other.repetition == trial.repetition)?;
            Some(figure_of(trial)? / figure_of(paired).filter(|figure| *figure > 0.0)?)
        };
        Figure::from_values(self.counted.iter().filter_map(ratio).collect())
    }

    fn sum(&self, figure_of: impl Fn(&Trial) -> u64) -> u64 {
        self.counted.iter().map(|trial| figure_of(trial)).sum()
    }

    fn lost(&self) -> u64 {
        self.sum(|trial| trial.lost.unwrap_or(0))
    }

    fn twice(&self) -> u64 {
        self.sum(|trial| trial.duplicates.unwrap_or(0))
    }

    fn kills(&self) -> impl Iterator<Item = &Kills> {
        self.counted.iter().filter_map(|trial| trial.kills.as_ref())
    }

    /// Formats the losses and duplicates, as in "0, 0", followed by a remark if the consumer lost
    /// data, stored rows twice, or did not come back.
    fn losses(&self) -> String {
        if self.counted.is_empty() {
            return dash();
        }
        let (lost, twice) = (self.lost(), self.twice());
        // If the consumer is dead, do not call rows lost: they may still be in the broker's queue.
        let remark = match self.kills().find_map(|kills| kills.failure.as_ref()) {
            Some(reason) => format!(" **did not come back**: {}", reason.replace(['|', '\n'], " ")),
            None if lost > 0 => " **loses data**".to_owned(),
            None if twice > 0 => " **stores twice**".to_owned(),
            None => String::new(),
        };
        format!("{lost}, {twice}{remark}")
    }
}

fn dash() -> String {
    "–".to_owned()
}

impl Report {
    pub(crate) fn new(machine: Machine, cases: &[Case], binaries: Option<&Binaries>) -> Self {
        let kinds: BTreeSet<Kind> = cases.iter().flat_map(|case| case.kinds.clone()).collect();
        let missing =
            |kind: &Kind| Some((kind.name(), binaries?.unavailable_reason(*kind)?.to_owned()));
        Self {
            machine,
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

    /// Returns `true` if every available consumer has an accepted figure in each of its cases.
    pub(crate) fn is_complete(&self) -> bool {
        let is_available = |row: &&Row<'_>| !self.missing.contains_key(row.kind.name());
        self.cases.iter().all(|case| {
            self.rows(case).iter().filter(is_available).all(|row| !row.counted.is_empty())
        })
    }

    fn trials_of(&self, case: &Case, kind: Kind) -> impl Iterator<Item = &Trial> {
        self.trials
            .iter()
            .filter(move |trial| trial.case == case.name && trial.consumer == kind.name())
    }

    fn rows(&self, case: &Case) -> Vec<Row<'_>> {
        let mut kinds = case.kinds.clone();
        kinds.sort_unstable();
        let counted =
            |kind| self.trials_of(case, kind).filter(|trial| trial.refused.is_empty()).collect();
        kinds.into_iter().map(|kind| Row { kind, counted: counted(kind) }).collect()
    }

    pub(crate) fn markdown(&self) -> String {
        let mut out = format!(
            "# milepost compared with its peers, {}\n\n{}\n\n",
            self.machine.date,
            self.machine.in_words()
        );
        out += &self.headlines().map_or(String::new(), |table| table.markdown() + "\n");
        for (name, reason) in &self.missing {
            out += &format!("- missing: {name}: {reason}\n");
        }
        for case in &self.cases {
            let rows = self.rows(case);
            let table = if case.kills > 0 { kills_table(&rows) } else { cost_table(&rows) };
            out += &format!(
                "\n## {}\n\n`--only {}`: {} drivers, {} s a step after {WARM_UP_SECONDS} s of warm-up, {} repetitions; \
                 medians (least–most).\n\n{}\n",
                case.title,
                case.name,
                case.drivers,
                case.seconds,
                case.repetitions,
                table.markdown()
            );
            self.notes(case, &rows).iter().for_each(|note| out += &format!("- {note}\n"));
        }
        if let Some(table) = self.by_connections() {
            out += &format!("\n## CPU a message by connections\n\n{}", table.markdown());
        }
        out + &format!(
            "\n## How to read this\n\n{READING} A store counts as settled when it has not grown for {} s.\n",
            QUIET.as_secs()
        )
    }

    /// Returns the table of the most important figures of several cases. Each figure stands after
    /// its ratio to the first consumer's figure.
    fn headlines(&self) -> Option<Table> {
        let rows_of =
            |name: &str| Some(self.rows(self.cases.iter().find(|case| case.name == name)?));
        let measured: Vec<(&Column, &str, Vec<Row<'_>>)> = HEADLINES
            .iter()
            .filter_map(|(case, column, unit)| Some((column, *unit, rows_of(case)?)))
            .collect();
        let (_, _, first_rows) = measured.first()?;
        let kinds: Vec<Kind> = first_rows.iter().map(|row| row.kind).collect();
        let base = *kinds.first()?;
        let killed = rows_of("kill-9");
        let names = once(format!("{} = 1", base.name()))
            .chain(measured.iter().map(|(column, ..)| column.name.to_owned()));
        let mut table = Table::with_columns(
            names.chain(killed.iter().map(|_| "lost, twice after kill -9".to_owned())),
        );
        let find = |rows: &[Row<'_>], kind| rows.iter().position(|row| row.kind == kind);
        for kind in kinds {
            let mut cells = vec![kind.name().to_owned()];
            for (Column { figure_of, decimals, .. }, unit, rows) in &measured {
                let cell = || {
                    let (row, base) = (&rows[find(rows, kind)?], &rows[find(rows, base)?]);
                    let (ratio, figure) = (row.ratio_to(base, figure_of)?, row.figure(figure_of)?);
                    Some(format!("{:.2} ({:.decimals$} {unit})", ratio.median, figure.median))
                };
                cells.push(cell().unwrap_or_else(dash));
            }
            cells.extend(
                killed
                    .iter()
                    .map(|rows| find(rows, kind).map_or_else(dash, |index| rows[index].losses())),
            );
            table.rows.push(cells);
        }
        Some(table)
    }

    fn notes(&self, case: &Case, rows: &[Row<'_>]) -> Vec<String> {
        let mut notes = Vec::new();
        let row = |kind: Kind| rows.iter().find(|row| row.kind == kind);
        let share = row(Kind::Floor)
            .zip(row(Kind::Node))
            .and_then(|(floor, node)| floor.ratio_to(node, CPU));
        if let Some(Figure { median: share, .. }) = share.filter(|_| case.kills == 0) {
            let verdict = if share <= FLOOR_MAX { "a floor" } else { "NOT A FLOOR here" };
            notes.push(format!(
                "The floor takes {share:.2} of Node's CPU ({FLOOR_MAX} at most): {verdict}."
            ));
        }
        for row in rows.iter().skip(1).filter(|_| case.kills == 0) {
            let spread = row.ratio_to(&rows[0], CPU).map_or(0.0, Figure::relative_spread);
            if spread > SPREAD_MAX {
                notes.push(format!(
                    "{}: the repetitions of its CPU ratio are {:.0} % apart: repeat this on a quiet machine.",
                    row.kind.name(),
                    spread * 100.0
                ));
            }
        }
        let trials = case.kinds.iter().flat_map(|kind| self.trials_of(case, *kind));
        notes.extend(trials.filter(|trial| !trial.refused.is_empty()).map(|trial| {
            format!(
                "Not counted: {}, repetition {}: {}",
                trial.consumer,
                trial.repetition + 1,
                trial.refused.join("; ")
            )
        }));
        notes
    }

    /// Shows how milepost's CPU per message grows with the number of its connections.
    fn by_connections(&self) -> Option<Table> {
        let cases: Vec<&Case> =
            self.cases.iter().filter(|case| case.connections.is_some()).collect();
        let first = cases.first().filter(|_| cases.len() > 1)?;
        let base = self.rows(first);
        let cell =
            |case: &&Case| Some(self.rows(case).first()?.ratio_to(base.first()?, CPU)?.text(2));
        let mut table = Table::with_columns(cases.iter().map(|case| case.name.clone()));
        table.rows.push(cases.iter().map(|case| cell(case).unwrap_or_else(dash)).collect());
        Some(table)
    }
}

/// Returns the table of costs: each figure, with its ratio to the first consumer's figure.
fn cost_table(rows: &[Row<'_>]) -> Table {
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|column| rows.iter().any(|row| row.figure(column.figure_of).is_some()))
        .collect();
    let names = once("consumer").chain(columns.iter().map(|column| column.name));
    let mut table = Table::with_columns(names.chain(["messages", "lost, twice"]));
    for (index, row) in rows.iter().enumerate() {
        let cell = |Column { figure_of, decimals, .. }: &&Column| {
            let Some(figure) = row.figure(figure_of) else { return dash() };
            let ratio = row.ratio_to(&rows[0], figure_of).filter(|_| index > 0);
            figure.text(*decimals)
                + &ratio.map_or(String::new(), |ratio| format!("; × {}", ratio.text(2)))
        };
        let cells = once(row.kind.name().to_owned()).chain(columns.iter().map(cell));
        table.rows.push(
            cells.chain([row.sum(|trial| trial.messages).to_string(), row.losses()]).collect(),
        );
    }
    table
}

/// Returns the table of kills: sums over the repetitions, and the longest absence.
fn kills_table(rows: &[Row<'_>]) -> Table {
    let names = "consumer|kills|messages|lost, twice|inserted again|met no session|longest absence";
    let mut table = Table::with_columns(names.split('|'));
    for row in rows {
        let sum = |count_of: fn(&Kills) -> u64| row.kills().map(count_of).sum::<u64>().to_string();
        let longest = row.kills().flat_map(|kills| &kills.back_after_ms).copied().reduce(f64::max);
        table.rows.push(vec![
            row.kind.name().to_owned(),
            sum(|kills| u64::from(kills.count)),
            row.sum(|trial| trial.messages).to_string(),
            row.losses(),
            sum(|kills| kills.duplicates_raw),
            sum(|kills| kills.no_subscriber),
            longest.map_or_else(dash, |ms| format!("{:.2} s", ms / 1e3)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a report in which milepost takes 1 µs in the first repetition and 2 µs in the
    /// second. `node_ratios`: Node's time as a multiple of milepost's, for each repetition.
    fn report(node_ratios: [f64; 2]) -> String {
        let case = crate::cases::quick().remove(0);
        let mut report = Report::new(Machine::default(), std::slice::from_ref(&case), None);
        let repetitions = [1.0, 2.0].into_iter().zip(node_ratios);
        for (repetition, (milepost_us, node_ratio)) in (0..).zip(repetitions) {
            let ratios = [(Kind::Milepost, 1.0), (Kind::Node, node_ratio), (Kind::Floor, 0.5)];
            for (kind, ratio) in ratios {
                let (case, consumer) = (case.name.clone(), kind.name().to_owned());
                let cpu_us_per_message = milepost_us * ratio;
                report.add(Trial {
                    case,
                    consumer,
                    repetition,
                    cpu_us_per_message,
                    ..Trial::default()
                });
            }
        }
        report.markdown()
    }

    #[test]
    fn ratios_are_computed_within_a_repetition_with_their_spread() {
        let steady = report([8.0, 8.0]);
        assert!(steady.contains("| node | 12.00 (8.00–16.00); × 8.00 (8.00–8.00) |"), "{steady}");
        assert!(
            steady.contains("The floor takes 0.06 of Node's CPU") && !steady.contains("apart:"),
            "{steady}"
        );
        let drifting = report([8.0, 12.0]);
        assert!(
            drifting.contains("node: the repetitions of its CPU ratio are 40 % apart"),
            "{drifting}"
        );
    }
}
