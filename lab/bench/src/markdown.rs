//! The report in chapters, for Markdown and for the page: ratios first, absolute figures second.

use std::iter::once;

use lab_harness::table::Table;
use lab_stand_ins::tally;
use serde::Serialize;

use crate::cases::{Case, WARM_UP_SECONDS};
use crate::kind::Kind;
use crate::load::{QUIET, QUIET_LIMITED};
use crate::machine::Machine;
use crate::report::{CPU, Figure, Of, Report, Row};
use crate::trial::{Account, Kills};
use crate::words::{repetitions, thousands};

/// A floor above this share of Node's CPU is not one.
const FLOOR_MAX: f64 = 0.2;
/// What a quiet machine does besides.
pub(crate) const OTHERS_CORES_MAX: f64 = 0.1;

/// Its name, its figure, and digits after the point.
type Column = (&'static str, Of, usize);

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

/// What the first table, the one in docs/results.md, shows of which case.
type Headline = (&'static str, &'static str, Of, usize, &'static str);

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

fn none() -> String {
    "–".to_owned()
}

/// A chapter: a sentence in Markdown, tables, and what is to be said about them.
#[derive(Serialize, Default)]
pub(crate) struct Chapter {
    title: String,
    text: String,
    tables: Vec<Table>,
    notes: Vec<String>,
}

impl Chapter {
    fn markdown(&self) -> String {
        let tables: String = self.tables.iter().map(|table| table.markdown() + "\n").collect();
        let notes: String = self.notes.iter().map(|note| format!("- {note}\n")).collect();
        format!("## {}\n\n{}\n\n{tables}{notes}\n", self.title, self.text)
    }
}

/// The report as Markdown.
pub(crate) fn of(report: &Report) -> String {
    let Machine { date, .. } = &report.machine;
    let chapters: String = chapters(report).iter().map(Chapter::markdown).collect();
    format!("# milepost beside its peers, {date}\n\n{}\n\n{chapters}", report.machine.in_words())
}

/// What the report says, in its order.
pub(crate) fn chapters(report: &Report) -> Vec<Chapter> {
    let of_case = |case: &Case| {
        let mut chapter = if case.kills > 0 {
            of_kills(case, &report.rows(case))
        } else {
            of_cost(case, &report.rows(case))
        };
        chapter.title.clone_from(&case.title);
        for kind in &case.kinds {
            for trial in report.trials_of(case, *kind).filter(|trial| !trial.refused.is_empty()) {
                let (name, repetition) = (kind.name(), trial.repetition + 1);
                let why = trial.refused.join("; ");
                chapter.notes.push(format!("Not counted: {name}, repetition {repetition}: {why}"));
            }
        }
        chapter
    };
    let what = report.consumers.iter().map(|(name, what)| format!("**{name}**: {what}"));
    let first = Chapter {
        title: "At a glance".to_owned(),
        text: "The ratio to the first one's, then the figure itself.".to_owned(),
        tables: headlines(report).into_iter().collect(),
        notes: what.collect(),
    };
    let last = Chapter {
        title: "Not measured, and how to read this".to_owned(),
        notes: not_measured(report),
        ..Chapter::default()
    };
    let series = SERIES.iter().filter_map(|(prefix, title)| series(report, prefix, title));
    once(first).chain(report.cases.iter().map(of_case)).chain(series).chain(once(last)).collect()
}

/// The most important figures of several cases: the ratio, then the figure itself.
fn headlines(report: &Report) -> Option<Table> {
    let known: Vec<(&Headline, Vec<Row<'_>>)> = HEADLINES
        .iter()
        .filter_map(|line| Some((line, report.rows(report.cases.iter().find(|case| case.name == line.1)?))))
        .collect();
    let rows = &known.first()?.1;
    let base = rows.first()?.kind;
    let killed = report.cases.iter().find(|case| case.kills > 0).map(|case| report.rows(case));
    let names = once(format!("{} = 1", base.name()))
        .chain(known.iter().map(|(line, _)| line.0.to_owned()))
        .chain(once("lost, twice".to_owned()))
        .chain(killed.iter().map(|_| "lost, twice after kill -9".to_owned()));
    let mut table = Table::of(names);
    for kind in rows.iter().map(|row| row.kind) {
        let find = |rows: &[Row<'_>], kind| rows.iter().position(|row: &Row<'_>| row.kind == kind);
        let cell = |((_, _, of, digits, unit), rows): &(&Headline, Vec<Row<'_>>)| {
            let (row, base) = (&rows[find(rows, kind)?], &rows[find(rows, base)?]);
            let (ratio, figure) = (row.ratio_to(base, of)?, row.figure(of)?);
            Some(format!("{:.2} ({:.digits$} {unit})", ratio.median, figure.median))
        };
        let judged = report.trials.iter().filter(|trial| {
            trial.consumer == kind.name() && known.iter().any(|(line, _)| line.1 == trial.case)
        });
        let account = Account::of(judged).map(|account| format!("{}, {}", account.lost, account.twice));
        let mut cells = vec![kind.name().to_owned()];
        cells.extend(known.iter().map(|known| cell(known).unwrap_or_else(none)));
        cells.push(account.unwrap_or_else(none));
        cells.extend(
            killed.iter().map(|rows| find(rows, kind).map_or_else(none, |at| killed_cell(&rows[at]))),
        );
        table.rows.push(cells);
    }
    Some(table)
}

fn of_cost(case: &Case, rows: &[Row<'_>]) -> Chapter {
    let text = format!(
        "`--only {}`: {} drivers; {} s a step after {WARM_UP_SECONDS} s of warm-up, {}; medians, ratios by pairs of the \
         same repetition (least–most).",
        case.name,
        thousands(case.drivers),
        case.seconds,
        repetitions(case.repetitions)
    );
    let tables = ratios(rows).into_iter().chain(once(absolute(rows))).collect();
    Chapter { text, tables, notes: notes(case, rows), ..Chapter::default() }
}

/// Against milepost, or whoever is first.
fn ratios(rows: &[Row<'_>]) -> Option<Table> {
    let base = rows.iter().find(|row| !row.good.is_empty()).filter(|_| rows.len() > 1)?;
    let columns: Vec<&Column> = RATIOS.iter().filter(|(_, of, _)| base.figure(of).is_some()).collect();
    let names = once(format!("{} = 1", base.kind.name()));
    let mut table = Table::of(names.chain(columns.iter().map(|column| column.0.to_owned())));
    for row in rows {
        let spread = row.good.len() > 1 && row.kind != base.kind;
        let cell = |(_, of, _): &&Column| {
            row.ratio_to(base, of).map_or_else(none, |figure| figure.in_words(2, spread))
        };
        table.rows.push(once(row.kind.name().to_owned()).chain(columns.iter().map(cell)).collect());
    }
    Some(table)
}

fn absolute(rows: &[Row<'_>]) -> Table {
    let known = |column: &&Column| rows.iter().any(|row| row.figure(column.1).is_some());
    let columns: Vec<&Column> = ABSOLUTE.iter().filter(known).collect();
    let names = once("absolute, median (least–most)").chain(columns.iter().map(|column| column.0));
    let mut table = Table::of(names.chain(["messages", "lost", "twice"]));
    for row in rows {
        let cell = |(_, of, digits): &&Column| {
            row.figure(of).map_or_else(none, |figure| figure.in_words(*digits, row.good.len() > 1))
        };
        let account = row.account();
        let counts = account.map(|a| [a.messages, a.lost, a.twice].map(|count| count.to_string()));
        let cells = once(row.kind.name().to_owned()).chain(columns.iter().map(cell));
        table.rows.push(cells.chain(counts.unwrap_or_else(|| [none(), none(), none()])).collect());
    }
    table
}

fn notes(case: &Case, rows: &[Row<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    let row = |kind: Kind| rows.iter().find(|row| row.kind == kind);
    let share = row(Kind::Floor).zip(row(Kind::Node)).and_then(|(floor, node)| floor.ratio_to(node, CPU));
    if let Some(Figure { median: share, .. }) = share {
        let verdict = if share <= FLOOR_MAX { "a floor" } else { "NOT A FLOOR here" };
        notes.push(format!("The floor takes {share:.2} of Node's CPU ({FLOOR_MAX} at most): {verdict}."));
    }
    let trials = || rows.iter().flat_map(|row| &row.good);
    let others = trials().map(|trial| trial.others_cores).fold(0.0, f64::max);
    if others > OTHERS_CORES_MAX {
        notes.push(format!(
            "OTHER PROCESSES took up to {others:.1} cores meanwhile: repeat this on a quiet machine."
        ));
    }
    for trial in trials() {
        if case.members > 1 {
            let shares: Vec<String> =
                trial.shares.iter().map(|share| format!("{:.1} %", share * 100.0)).collect();
            notes.push(format!("{}: shares of the members: {}", trial.consumer, shares.join(", ")));
        }
        notes.extend(trial.unlimited.iter().map(|why| {
            let who = &trial.consumer;
            format!("{who}: limits could not be set ({why}): compare with 25 % of a core and 128 MiB")
        }));
    }
    let start = |row: &Row<'_>| {
        let figure = row.figure(|trial| Some(trial.start_to_subscribed_ms))?;
        Some(format!("{} {:.0} ms", row.kind.name(), figure.median))
    };
    let starts: Vec<String> = rows.iter().filter_map(start).collect();
    notes.push(format!("From start to subscribed: {}", starts.join(", ")));
    notes
}

/// What grows with what, over several cases.
fn series(report: &Report, prefix: &str, title: &str) -> Option<Chapter> {
    let cases: Vec<&Case> = report.cases.iter().filter(|case| case.name.starts_with(prefix)).collect();
    let first = cases.first().filter(|_| cases.len() > 1)?;
    let names = once(format!("{} = 1", first.name)).chain(cases.iter().map(|case| case.name.clone()));
    let mut table = Table::of(names);
    let cpu = |case: &Case, kind: Kind| {
        let row = report.rows(case).into_iter().find(|row| row.kind == kind)?;
        Some(row.figure(CPU)?.median)
    };
    for kind in &first.kinds {
        let ratio = |case: &&Case| Some(format!("{:.2}", cpu(case, *kind)? / cpu(first, *kind)?));
        let ratios = cases.iter().map(|case| ratio(case).unwrap_or_else(none));
        table.rows.push(once(kind.name().to_owned()).chain(ratios).collect());
    }
    Some(Chapter { title: title.to_owned(), tables: vec![table], ..Chapter::default() })
}

fn kills<'a>(row: &'a Row<'_>) -> impl Iterator<Item = &'a Kills> {
    row.good.iter().filter_map(|trial| trial.kills.as_ref())
}

/// What is wrong with a consumer, in words.
fn wrong(row: &Row<'_>, account: &Account) -> String {
    // What one that is gone did not store may still be with the broker.
    if let Some(why) = kills(row).find_map(|kills| kills.gone.as_ref()) {
        return format!("**did not come back**: {}", why.replace(['|', '\n'], " "));
    }
    let found = [(account.lost > 0, "**loses data**"), (account.twice > 0, "**stores twice**")];
    let found: Vec<&str> = found.into_iter().filter(|(is, _)| *is).map(|(_, words)| words).collect();
    found.join(", ")
}

/// For a table of several cases: lost and twice, and what that means.
fn killed_cell(row: &Row<'_>) -> String {
    let words = |account: Account| format!("{}, {} {}", account.lost, account.twice, wrong(row, &account));
    row.account().map_or_else(none, |account| words(account).trim_end().to_owned())
}

/// One row a consumer: sums over the repetitions, and the longest absence.
fn of_kills(case: &Case, rows: &[Row<'_>]) -> Chapter {
    let text = format!(
        "`--only {}`: {} drivers; {} s of load a step, {}; sums, and the longest absence. Killed {} times a \
         step, with half a batch in memory or, the second time, with an insert committed whose answer it has not had; \
         what it started dies with it. Cost does not count here. What is lost is what is not stored once the count has \
         stood still for {} s.",
        case.name,
        thousands(case.drivers),
        WARM_UP_SECONDS + case.seconds,
        repetitions(case.repetitions),
        case.kills,
        QUIET.as_secs()
    );
    let names =
        "consumer|acknowledges|kills|messages|lost|twice in `fixes`|raw duplicates|back after|in words";
    let mut table = Table::of(names.split('|'));
    let mut unheard = Vec::new();
    for row in rows {
        let mut cells = vec![row.kind.name().to_owned(), row.kind.acknowledges().to_owned()];
        if let Some(account) = row.account() {
            let Account { messages, lost, twice, .. } = account;
            let sum = |of: fn(&Kills) -> u64| kills(row).map(of).sum::<u64>();
            let counts = [sum(|kills| u64::from(kills.count)), messages, lost, twice];
            cells.extend(counts.map(|count| count.to_string()));
            cells.push(sum(|kills| kills.duplicates_raw).to_string());
            let longest = kills(row).flat_map(|kills| &kills.back_after_ms).copied().reduce(f64::max);
            cells.push(longest.map_or_else(none, |ms| format!("{:.2} s", ms / 1e3)));
            let wrong = wrong(row, &account);
            cells.push(if wrong.is_empty() { "nothing lost, each fix once".to_owned() } else { wrong });
            let times = sum(|kills| kills.no_subscriber);
            unheard.extend((times > 0).then(|| format!("{} {times}", row.kind.name())));
        }
        cells.resize(table.head.len(), none());
        table.rows.push(cells);
    }
    let mut notes = vec![
        "Raw duplicates are rows inserted again. Merges, which collapse them, are stopped here; `fixes` shows each fix once."
            .to_owned(),
    ];
    if !unheard.is_empty() {
        let unheard = unheard.join(", ");
        notes.push(format!(
            "Messages for which the broker had no session, which this fleet then sent again, and another would not: {unheard}"
        ));
    }
    Chapter { text, tables: vec![table], notes, ..Chapter::default() }
}

/// What is missing from this report, and what its figures do not say.
fn not_measured(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = report.missing.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let (planned, done) = (report.planned(), report.trials.len());
    if done < planned {
        lines.push(format!("{} of {planned} steps: not reached, or no such consumer", planned - done));
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
