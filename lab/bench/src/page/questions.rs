//! The questions, a plot each, and the answer in a sentence; it comes from the figures it stands beside.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::cases::{self, Case};
use crate::kind::Kind;
use crate::report::{CPU, Measured, Of, Report};
use crate::trial::Trial;
use crate::words::{short, times};

/// A plot with all that belongs to it.
#[derive(Serialize)]
pub(super) struct Plot {
    title: &'static str,
    /// `None` where nothing was measured.
    take_away: Option<String>,
    /// What is missing, and how the plot is to be read.
    notes: Vec<String>,
    command: String,
    form: &'static str,
    x: &'static str,
    y: &'static str,
    points: Vec<Point>,
}

/// One figure of one consumer.
#[derive(Serialize, Clone, Default)]
struct Point {
    who: &'static str,
    x: f64,
    /// `None` breaks a line.
    y: Option<f64>,
    least: f64,
    most: f64,
    label: String,
    /// y's ratio to milepost's, or memory's growth in ten minutes.
    #[serde(skip)]
    beside: Option<f64>,
}

/// What is taken from the trials.
enum Data {
    /// A figure as one thing grows, over several cases.
    Grows(fn(&Case) -> f64, Of),
    /// A figure of every consumer.
    Each(Of),
    /// A median and a 99th percentile, of the busiest case that has them.
    Quantiles(Of, Of),
    /// Memory second by second, of the busiest case.
    Memory,
}

struct Question {
    title: &'static str,
    /// How `page.js` draws it, and what it writes at the axes.
    form: &'static str,
    x: &'static str,
    y: &'static str,
    chosen: fn(&Case) -> bool,
    data: Data,
    says: fn(&[Point]) -> String,
}

const STORED: Of = |trial| trial.stored_per_second;
const RATE: fn(&Case) -> f64 = |case| case.rate.map_or(0.0, f64::from);

const GROWS: Question = Question {
    title: "",
    form: "grows",
    x: "messages/s",
    y: "CPU, µs a message",
    chosen: |_| false,
    data: Data::Grows(RATE, CPU),
    says: |points| {
        let (rate, all) = at_the_end(points);
        format!("At {} messages a second a message takes {}.", short(rate), against_milepost(&all, "µs"))
    },
};
const CEILING: Question = Question {
    form: "bars",
    x: "rows/s stored (least–most)",
    data: Data::Each(STORED),
    says: |points| format!("As fast as each goes, stored a second: {}.", ranked(points)),
    ..GROWS
};
const MEMORY: Question = Question {
    form: "seconds",
    x: "seconds since the load began",
    y: "resident memory, MiB",
    data: Data::Memory,
    says: says_memory,
    ..GROWS
};
const FLUSH: Question = Question {
    form: "ranges",
    x: "one insert, ms: shape = p50, end of the stroke = p99",
    chosen: |case| case.name.starts_with("sink-"),
    says: |points| format!("99 % of inserts are done within: {}.", against_milepost(points, "ms")),
    ..GROWS
};

/// In the order of the page: two stand side by side on a wide screen.
const QUESTIONS: [Question; 12] = [
    Question {
        title: "Stored against wanted",
        form: "wanted",
        x: "messages/s wanted, from the firehose at QoS 0",
        y: "rows/s stored",
        chosen: |case| case.name.starts_with("target-"),
        data: Data::Grows(RATE, STORED),
        says: |points| {
            let (wanted, all) = at_the_end(points);
            format!("Of {} messages a second wanted, stored each second: {}.", short(wanted), ranked(&all))
        },
    },
    Question {
        title: "CPU a message as the fleet grows",
        x: "drivers, together at one rate",
        chosen: |case| case.name.starts_with("fleet-"),
        data: Data::Grows(|case| f64::from(case.drivers), CPU),
        says: |points| says_growth(points, "drivers"),
        ..GROWS
    },
    Question {
        title: "Ceiling at QoS 0: firehose → null sink",
        chosen: |case| case.name == "ceiling-qos0",
        ..CEILING
    },
    Question {
        title: "Ceiling at QoS 1: firehose → null sink",
        chosen: |case| case.name == "ceiling-qos1",
        ..CEILING
    },
    Question {
        title: "CPU a message by rate, Mosquitto → ClickHouse, QoS 1",
        chosen: |case| case.name.starts_with("engine-"),
        ..GROWS
    },
    Question {
        title: "CPU a message by rate, Mosquitto → null sink, QoS 0",
        chosen: |case| case.name.starts_with("sink-") && case.qos == 0,
        ..GROWS
    },
    Question { title: "Memory over time", chosen: |case| case.name.starts_with("sink-"), ..MEMORY },
    Question { title: "Memory over ten minutes", chosen: |case| case.name == "slope", ..MEMORY },
    Question {
        title: "Flush, as the sink saw it",
        data: Data::Quantiles(|t| t.flush_seen_ms.map(|ms| ms.0), |t| t.flush_seen_ms.map(|ms| ms.1)),
        ..FLUSH
    },
    Question {
        title: "Flush, by each one's own histogram",
        data: Data::Quantiles(|t| t.flush_own_ms.map(|ms| ms.0), |t| t.flush_own_ms.map(|ms| ms.1)),
        ..FLUSH
    },
    Question {
        title: "Freshness: published → in ClickHouse",
        x: "ms: shape = p50, end of the stroke = p99",
        chosen: |case| case.name.starts_with("engine-"),
        data: Data::Quantiles(|t| t.freshness_ms.map(|ms| ms.0), |t| t.freshness_ms.map(|ms| ms.1)),
        says: |points| format!("99 % of positions are done within: {}.", against_milepost(points, "ms")),
        ..FLUSH
    },
    Question {
        title: "CPU a message as members join",
        x: "members of one share group, together at one rate",
        chosen: |case| case.name.starts_with("members-"),
        data: Data::Grows(|case| f64::from(case.members), CPU),
        says: |points| says_growth(points, "members"),
        ..GROWS
    },
];

pub(super) fn all(report: &Report) -> Vec<Plot> {
    QUESTIONS.iter().map(|question| question.plot(report)).collect()
}

/// What measures these cases again.
pub(super) fn command(names: &[&str]) -> String {
    let only: String = names.iter().map(|name| format!(" --only {name}")).collect();
    format!("lab bench --full{only}")
}

impl Question {
    fn plot(&self, report: &Report) -> Plot {
        let mut cases = match self.data {
            Data::Grows(..) | Data::Each(_) => cases_where(report, self.chosen),
            Data::Quantiles(..) | Data::Memory => busiest(report, self.chosen).into_iter().collect(),
        };
        let of: Of = match self.data {
            Data::Grows(x, of) => {
                cases.sort_by(|one, other| x(one).total_cmp(&x(other)));
                of
            }
            Data::Each(of) | Data::Quantiles(of, _) => of,
            Data::Memory => |trial| trial.samples.last().map(|sample| sample.rss_mib),
        };
        let points = self.data.points(report, &cases);
        let mut notes = gaps(report, &cases, of);
        if matches!(self.data, Data::Memory) && !points.is_empty() {
            notes.push("A line is one repetition: the first that counts.".to_owned());
        }
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        let known: Vec<Point> = points.iter().filter(|point| point.y.is_some()).cloned().collect();
        let take_away = (!known.is_empty()).then(|| (self.says)(&known));
        let Self { title, form, x, y, .. } = *self;
        Plot { title, take_away, notes, command: command(&names), form, x, y, points }
    }
}

impl Data {
    fn points(&self, report: &Report, cases: &[Case]) -> Vec<Point> {
        let all = |of: Of| cases.iter().flat_map(move |case| report.measured(case, of));
        match *self {
            Self::Grows(x, of) => {
                let all: Vec<_> = cases.iter().map(|case| (x(case), report.measured(case, of))).collect();
                let point = |kind: Kind, (x, all): &(f64, Vec<Measured>)| {
                    let one = all.iter().find(|one| one.kind == kind);
                    let point = one.map_or(Point { who: kind.name(), ..Point::default() }, Point::of);
                    Point { x: *x, ..point }
                };
                let line = |kind| all.iter().map(|case| point(kind, case)).collect::<Vec<_>>();
                let lines = Kind::ALL.into_iter().map(line);
                lines.filter(|line| line.iter().any(|point| point.y.is_some())).flatten().collect()
            }
            Self::Each(of) => all(of).map(|one| Point::of(&one)).collect(),
            Self::Quantiles(median, p99) => {
                let pair = |(median, p99): (Measured, Measured)| {
                    let (x, y) = (median.figure.median, p99.figure.median);
                    Point { x, label: format!("{} / {}", short(x), short(y)), ..Point::of(&p99) }
                };
                all(median).zip(all(p99)).map(pair).collect()
            }
            Self::Memory => {
                let rows = cases.iter().flat_map(|case| report.rows(case));
                let first = rows.filter_map(|row| Some((row.kind, *row.good.first()?)));
                first.flat_map(|(kind, trial)| memory(kind, trial)).collect()
            }
        }
    }
}

fn memory(kind: Kind, trial: &Trial) -> Vec<Point> {
    let point = |sample: &crate::trial::Sample| Point {
        who: kind.name(),
        x: sample.seconds,
        y: Some(sample.rss_mib),
        beside: trial.rss_mib_per_ten_minutes,
        ..Point::default()
    };
    trial.samples.iter().map(point).collect()
}

impl Point {
    fn of(one: &Measured) -> Self {
        let (y, least, most) = (one.figure.median, one.figure.least, one.figure.most);
        let spread =
            if least < most { format!(" ({}–{})", short(least), short(most)) } else { String::new() };
        let label = format!("{}{spread}", short(y));
        Self { who: one.kind.name(), x: 0.0, y: Some(y), least, most, label, beside: one.ratio }
    }

    fn figure(&self) -> f64 {
        self.y.unwrap_or(0.0)
    }
}

/// What every consumer that came so far had at the last step.
fn at_the_end(points: &[Point]) -> (f64, Vec<Point>) {
    let most = points.iter().map(|point| point.x).fold(0.0, f64::max);
    (most, points.iter().filter(|point| point.x >= most).cloned().collect())
}

/// milepost's figure and the others' ratios to it; without milepost everybody's figure.
fn against_milepost(all: &[Point], unit: &str) -> String {
    let milepost = Kind::Milepost.name();
    let one = |point: &&Point| match point.beside {
        Some(ratio) if point.who != milepost => format!("{} {}", point.who, times(ratio)),
        _ => format!("{} {} {unit}", point.who, short(point.figure())),
    };
    let (ours, others): (Vec<&Point>, Vec<&Point>) = all.iter().partition(|point| point.who == milepost);
    let others = others.iter().map(one).collect::<Vec<_>>().join(", ");
    match ours.first() {
        Some(ours) if others.is_empty() => one(ours),
        Some(ours) => format!("{}, and against that {others}", one(ours)),
        None => others,
    }
}

/// The most first.
fn ranked(all: &[Point]) -> String {
    let mut all: Vec<&Point> = all.iter().collect();
    all.sort_by(|one, other| other.figure().total_cmp(&one.figure()));
    let told = all.iter().map(|point| format!("{} {}", point.who, short(point.figure())));
    told.collect::<Vec<_>>().join(", ")
}

/// The last figure over the first, of those that have both.
fn says_growth(points: &[Point], what: &str) -> String {
    let from = points.iter().map(|point| point.x).fold(f64::INFINITY, f64::min);
    let (to, ends) = at_the_end(points);
    let first = |who: &str| points.iter().find(|point| point.who == who && point.x <= from && from < to);
    let grown = |end: &Point| Some(format!("{} {}", end.who, times(end.figure() / first(end.who)?.figure())));
    let all: Vec<String> = ends.iter().filter_map(grown).collect();
    if all.is_empty() {
        return format!("Measured with too few numbers of {what} to say how it grows.");
    }
    let (from, to) = (short(from), short(to));
    format!("From {from} to {to} {what} a message's CPU becomes: {}.", all.join(", "))
}

fn says_memory(points: &[Point]) -> String {
    let last: BTreeMap<&str, &Point> = points.iter().map(|point| (point.who, point)).collect();
    let mut last: Vec<&Point> = last.into_values().collect();
    last.sort_by(|one, other| one.figure().total_cmp(&other.figure()));
    let grows = |point: &&Point| Some(format!("{} {:+.1} MiB", point.who, point.beside?));
    let grows: Vec<String> = last.iter().filter_map(grows).collect();
    if !grows.is_empty() {
        return format!("In ten minutes, by least squares: {}.", grows.join(", "));
    }
    let held = last.iter().map(|point| format!("{} {} MiB", point.who, short(point.figure())));
    format!("Held at the end, the least first: {}.", held.collect::<Vec<_>>().join(", "))
}

/// The cases of a kind; where the report was asked for none of them, those it could have been asked for.
fn cases_where(report: &Report, chosen: impl Fn(&Case) -> bool) -> Vec<Case> {
    let asked: Vec<Case> = report.cases.iter().filter(|case| chosen(case)).cloned().collect();
    if asked.is_empty() { cases::full().into_iter().filter(|case| chosen(case)).collect() } else { asked }
}

/// Of several cases the one that says most: measured with the most consumers, then at the highest rate.
pub(super) fn busiest(report: &Report, chosen: impl Fn(&Case) -> bool) -> Option<Case> {
    let told = |case: &Case| report.rows(case).iter().filter(|row| !row.good.is_empty()).count();
    cases_where(report, chosen).into_iter().max_by_key(|case| (told(case), case.rate))
}

/// What stands between these cases and a complete and unblemished plot, a sentence each.
fn gaps(report: &Report, cases: &[Case], of: Of) -> Vec<String> {
    let asked = |case: &Case| report.cases.iter().any(|asked| asked.name == case.name);
    // All or none: the others of a plot are not looked for where one was asked for.
    if !cases.iter().any(asked) {
        return vec!["Not asked for in this run.".to_owned()];
    }
    let (mut notes, mut single, mut figures, mut singles) = (Vec::new(), BTreeSet::new(), 0, 0);
    for case in cases {
        let mut why: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for row in report.rows(case) {
            let (kind, count) = (row.kind, row.good.iter().filter(|trial| of(trial).is_some()).count());
            figures += count.min(1);
            if count == 1 {
                singles += 1;
                single.insert(format!("`{}`", case.name));
            }
            let account = row.account().filter(|account| account.lost + account.twice > 0);
            notes.extend(account.map(|a| format!("`{}`, {}: {}.", case.name, kind.name(), a.in_words())));
            if let Some(reason) = reason_of_gap(report, case, kind, count) {
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
    if let Some(why) = report.missing.get(kind.name()) {
        return Some(format!("cannot be had here: {why}"));
    }
    let trials: Vec<&Trial> = report.trials_of(case, kind).collect();
    let refused: Vec<String> =
        trials.iter().filter(|trial| !trial.refused.is_empty()).map(|t| t.refused.join("; ")).collect();
    match (figures, refused.as_slice(), trials.len()) {
        (_, _, 0) => Some("not reached".to_owned()),
        (0, [], _) => Some("has no such figure".to_owned()),
        (_, [], _) => None,
        (_, [why, ..], all) => Some(format!("{} of {all} repetitions do not count: {why}", refused.len())),
    }
}
