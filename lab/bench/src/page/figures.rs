//! Which plots the page has, and what each says in a sentence; the sentence comes from the figures it stands beside.

use maud::Markup;

use super::axis::{Axis, Scale, short, times};
use super::measured::{CPU, Measured, Of, busiest, cases_where, gaps, mark, measured, series};
use super::plot::{Bar, Lines, Point, Series, bars, ranges};
use crate::cases::Case;
use crate::consumer::Kind;
use crate::report::{Figure, Report};

/// A plot with all that belongs to it.
pub(super) struct Shown {
    pub(super) title: &'static str,
    /// One sentence; `None` where nothing was measured.
    pub(super) take_away: Option<String>,
    pub(super) plot: Option<Markup>,
    pub(super) cases: Vec<Case>,
    /// What is missing, and how the plot is to be read.
    pub(super) notes: Vec<String>,
}

/// In the order of the page.
pub(super) fn all(report: &Report) -> Vec<Shown> {
    let [target, engine, sink, fleet, members] = growths().map(|growth| growth.show(report));
    let [seen, own, freshness] = latencies().map(|latency| latency.show(report));
    // Two stand side by side on a wide screen.
    vec![
        target,
        fleet,
        ceilings(report, 0),
        ceilings(report, 1),
        engine,
        sink,
        memory(report, "Memory over time", |case| case.name.starts_with("sink-")),
        memory(report, "Memory over ten minutes", |case| case.name == "slope"),
        seen,
        own,
        freshness,
        members,
    ]
}

/// One figure as one thing grows, over several cases.
struct Growth {
    title: &'static str,
    chosen: fn(&Case) -> bool,
    x: fn(&Case) -> f64,
    x_label: &'static str,
    y: Of,
    y_label: &'static str,
    says: fn(&[Series]) -> Option<String>,
    /// x and y count the same, so that the plot can show where they would be equal.
    as_wanted: bool,
}

const CPU_LABEL: &str = "CPU, µs a message";
const STORED: Of = |trial| trial.stored_per_second;
const WANTED: fn(&Case) -> f64 = |case| case.rate.map_or(0.0, f64::from);

fn growths() -> [Growth; 5] {
    [
        Growth {
            title: "Stored against wanted",
            chosen: |case| case.name.starts_with("target-"),
            x: WANTED,
            x_label: "messages/s wanted, from the firehose at QoS 0",
            y: STORED,
            y_label: "rows/s stored",
            as_wanted: true,
            says: |series| {
                let (wanted, all) = last(series)?;
                let stored = ranked(all.iter().map(|(name, point)| (*name, point.median)));
                let wanted = short(wanted);
                Some(format!("Of {wanted} messages a second wanted, stored each second: {stored}."))
            },
        },
        Growth {
            title: "CPU a message by rate, Mosquitto → ClickHouse, QoS 1",
            chosen: |case| case.name.starts_with("engine-"),
            x: WANTED,
            x_label: "messages/s",
            y: CPU,
            y_label: CPU_LABEL,
            as_wanted: false,
            says: says_cpu_at_last,
        },
        Growth {
            title: "CPU a message by rate, Mosquitto → null sink, QoS 0",
            chosen: |case| case.name.starts_with("sink-") && case.qos == 0,
            x: WANTED,
            x_label: "messages/s",
            y: CPU,
            y_label: CPU_LABEL,
            as_wanted: false,
            says: says_cpu_at_last,
        },
        Growth {
            title: "CPU a message as the fleet grows",
            chosen: |case| case.name.starts_with("fleet-"),
            x: |case| f64::from(case.drivers),
            x_label: "drivers, together at one rate",
            y: CPU,
            y_label: CPU_LABEL,
            as_wanted: false,
            says: |series| says_growth(series, "drivers"),
        },
        Growth {
            title: "CPU a message as members join",
            chosen: |case| case.name.starts_with("members-"),
            x: |case| f64::from(case.members),
            x_label: "members of one share group, together at one rate",
            y: CPU,
            y_label: CPU_LABEL,
            as_wanted: false,
            says: |series| says_growth(series, "members"),
        },
    ]
}

impl Growth {
    fn show(&self, report: &Report) -> Shown {
        let mut cases = cases_where(report, self.chosen);
        cases.sort_by(|one, other| (self.x)(one).total_cmp(&(self.x)(other)));
        let series = series(report, &cases, self.x, self.y);
        let take_away = (self.says)(&series);
        let about = about(self.title, take_away.as_ref());
        Shown {
            title: self.title,
            plot: self.draw(&about, &series),
            take_away,
            notes: gaps(report, &cases, self.y),
            cases,
        }
    }

    fn draw(&self, about: &str, series: &[Series]) -> Option<Markup> {
        let points = || series.iter().flat_map(|series| &series.points);
        let as_wanted = self.as_wanted;
        let x = Axis::at(self.x_label, points().map(|point| point.x))?;
        let wanted = x.ticks.iter().copied().filter(|_| as_wanted);
        let label = format!("{}, log scale", self.y_label);
        let y = points().flat_map(|point| [point.least, point.most]).chain(wanted);
        let y = Axis::around(&label, Scale::Log, y)?;
        Some(Lines { about, x, y, series, as_wanted }.draw())
    }
}

/// What every consumer that came so far had at the last step.
fn last(series: &[Series]) -> Option<(f64, Vec<(&'static str, Point)>)> {
    let ends = || series.iter().filter_map(|series| Some((series.mark.name, *series.points.last()?)));
    let most = ends().map(|(_, point)| point.x).max_by(f64::total_cmp)?;
    Some((most, ends().filter(|(_, point)| point.x >= most).collect()))
}

fn says_cpu_at_last(series: &[Series]) -> Option<String> {
    let (rate, all) = last(series)?;
    let all: Vec<_> = all.iter().map(|(name, point)| (*name, point.median, point.ratio)).collect();
    Some(format!("At {} messages a second a message takes {}.", short(rate), against_milepost(&all, "µs")))
}

/// milepost's figure and the others' ratios to it; without milepost everybody's figure.
fn against_milepost(all: &[(&str, f64, Option<f64>)], unit: &str) -> String {
    let one = |(name, figure, ratio): &(&str, f64, Option<f64>)| match ratio {
        Some(ratio) if *name != Kind::Milepost.name() => format!("{name} {}", times(*ratio)),
        _ => format!("{name} {} {unit}", short(*figure)),
    };
    let (milepost, others): (Vec<_>, Vec<_>) =
        all.iter().partition(|(name, ..)| *name == Kind::Milepost.name());
    let others = others.into_iter().map(one).collect::<Vec<_>>().join(", ");
    match milepost.first() {
        Some(milepost) if others.is_empty() => one(milepost),
        Some(milepost) => format!("{}, and against that {others}", one(milepost)),
        None => others,
    }
}

/// The most first.
fn ranked<'a>(all: impl Iterator<Item = (&'a str, f64)>) -> String {
    let mut all: Vec<_> = all.collect();
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    let told = all.iter().map(|(name, figure)| format!("{name} {}", short(*figure)));
    told.collect::<Vec<_>>().join(", ")
}

/// The last figure over the first, of those that have both.
fn says_growth(series: &[Series], what: &str) -> Option<String> {
    let points = || series.iter().flat_map(|series| series.points.iter().map(|point| point.x));
    let (from, to) = (points().min_by(f64::total_cmp)?, points().max_by(f64::total_cmp)?);
    let grown = |series: &Series| {
        let (first, last) = series.points.first().zip(series.points.last())?;
        let whole = first.x <= from && last.x >= to && from < to;
        whole.then(|| format!("{} {}", series.mark.name, times(last.median / first.median)))
    };
    let all: Vec<String> = series.iter().filter_map(grown).collect();
    if all.is_empty() {
        return Some(format!("Measured with too few numbers of {what} to say how it grows."));
    }
    let (from, to) = (short(from), short(to));
    Some(format!("From {from} to {to} {what} a message's CPU becomes: {}.", all.join(", ")))
}

fn ceilings(report: &Report, qos: u8) -> Shown {
    let title = if qos == 0 {
        "Ceiling at QoS 0: firehose → null sink"
    } else {
        "Ceiling at QoS 1: firehose → null sink"
    };
    let cases = cases_where(report, |case| case.name.starts_with("ceiling-") && case.qos == qos);
    let all: Vec<Measured> = cases.iter().flat_map(|case| measured(report, case, STORED)).collect();
    let stored = ranked(all.iter().map(|one| (one.kind.name(), one.figure.median)));
    let take_away = (!all.is_empty()).then(|| format!("As fast as each goes, stored a second: {stored}."));
    let about = about(title, take_away.as_ref());
    let rows: Vec<Bar> = all
        .iter()
        .map(|one| Bar {
            mark: mark(one.kind),
            from: 0.0,
            to: one.figure.median,
            value: with_spread(one.figure),
        })
        .collect();
    let axis = Axis::around("rows/s stored (least–most)", Scale::Linear, rows.iter().map(|row| row.to));
    Shown {
        title,
        plot: axis.map(|axis| bars(&about, &axis, &rows)),
        take_away,
        notes: gaps(report, &cases, STORED),
        cases,
    }
}

fn with_spread(figure: Figure) -> String {
    let Figure { median, least, most } = figure;
    if least < most {
        format!("{} ({}–{})", short(median), short(least), short(most))
    } else {
        short(median)
    }
}

/// A median and a 99th percentile, of the busiest case that has them.
struct Latency {
    title: &'static str,
    label: &'static str,
    what: &'static str,
    chosen: fn(&Case) -> bool,
    median: Of,
    p99: Of,
}

fn latencies() -> [Latency; 3] {
    [
        Latency {
            title: "Flush, as the sink saw it",
            label: "one insert, ms, log scale: shape = p50, stroke = p99",
            what: "inserts",
            chosen: |case| case.name.starts_with("sink-"),
            median: |trial| trial.flush_seen_ms.map(|ms| ms.0),
            p99: |trial| trial.flush_seen_ms.map(|ms| ms.1),
        },
        Latency {
            title: "Flush, by each one's own histogram",
            label: "one insert, ms, log scale: shape = p50, stroke = p99",
            what: "inserts",
            chosen: |case| case.name.starts_with("sink-"),
            median: |trial| trial.flush_own_ms.map(|ms| ms.0),
            p99: |trial| trial.flush_own_ms.map(|ms| ms.1),
        },
        Latency {
            title: "Freshness: published → in ClickHouse",
            label: "ms, log scale: shape = p50, stroke = p99",
            what: "positions",
            chosen: |case| case.name.starts_with("engine-"),
            median: |trial| trial.freshness_ms.map(|ms| ms.0),
            p99: |trial| trial.freshness_ms.map(|ms| ms.1),
        },
    ]
}

impl Latency {
    fn show(&self, report: &Report) -> Shown {
        let cases: Vec<Case> = busiest(report, self.chosen).into_iter().collect();
        let of = |of: Of| cases.iter().flat_map(move |case| measured(report, case, of)).collect::<Vec<_>>();
        let (medians, p99s) = (of(self.median), of(self.p99));
        let rows: Vec<Bar> = medians.iter().zip(&p99s).map(|(median, p99)| bar(median, p99)).collect();
        let all: Vec<_> = p99s.iter().map(|one| (one.kind.name(), one.figure.median, one.ratio)).collect();
        let take_away = (!all.is_empty())
            .then(|| format!("99 % of {} are done within: {}.", self.what, against_milepost(&all, "ms")));
        let about = about(self.title, take_away.as_ref());
        let axis = Axis::around(self.label, Scale::Log, rows.iter().flat_map(|row| [row.from, row.to]));
        Shown {
            title: self.title,
            plot: axis.map(|axis| ranges(&about, &axis, &rows)),
            take_away,
            notes: gaps(report, &cases, self.median),
            cases,
        }
    }
}

fn bar(median: &Measured, p99: &Measured) -> Bar {
    let (from, to) = (median.figure.median, p99.figure.median);
    Bar { mark: mark(median.kind), from, to, value: format!("{} / {}", short(from), short(to)) }
}

fn memory(report: &Report, title: &'static str, chosen: fn(&Case) -> bool) -> Shown {
    let cases: Vec<Case> = busiest(report, chosen).into_iter().collect();
    let lines: Vec<Series> = cases.iter().flat_map(|case| memory_of(report, case)).collect();
    let grows: Vec<Measured> =
        cases.iter().flat_map(|case| measured(report, case, |trial| trial.rss_mib_per_ten_minutes)).collect();
    let take_away = if grows.is_empty() { says_memory_held(&lines) } else { Some(says_memory_grows(&grows)) };
    let about = about(title, take_away.as_ref());
    let points = || lines.iter().flat_map(|series| &series.points);
    let axes = Axis::up_to_the_last("seconds since the load began", points().map(|point| point.x))
        .zip(Axis::around("resident memory, MiB", Scale::Linear, points().map(|point| point.most)));
    let plot = axes.map(|(x, y)| Lines { about: &about, x, y, series: &lines, as_wanted: false }.draw());
    let mut notes = gaps(report, &cases, |trial| trial.samples.last().map(|sample| sample.rss_mib));
    if plot.is_some() {
        notes.push("A line is one repetition: the first that counts.".to_owned());
    }
    Shown { title, take_away, plot, cases, notes }
}

fn memory_of(report: &Report, case: &Case) -> Vec<Series> {
    let rows = report.rows(case);
    let line = |row: &crate::report::Row<'_>| {
        let samples = &row.good.first().filter(|trial| !trial.samples.is_empty())?.samples;
        let point = |(index, sample): (usize, &crate::trial::Sample)| {
            let mib = sample.rss_mib;
            Point { x: sample.seconds, median: mib, least: mib, most: mib, ratio: None, joined: index > 0 }
        };
        Some(Series { mark: mark(row.kind), points: samples.iter().enumerate().map(point).collect() })
    };
    rows.iter().filter_map(line).collect()
}

fn says_memory_held(lines: &[Series]) -> Option<String> {
    let mut all: Vec<(&str, f64)> =
        lines.iter().filter_map(|line| Some((line.mark.name, line.points.last()?.median))).collect();
    all.sort_by(|one, other| one.1.total_cmp(&other.1));
    let told: Vec<String> = all.iter().map(|(name, mib)| format!("{name} {} MiB", short(*mib))).collect();
    (!told.is_empty()).then(|| format!("Held at the end, the least first: {}.", told.join(", ")))
}

fn says_memory_grows(grows: &[Measured]) -> String {
    let one = |one: &Measured| format!("{} {:+.1} MiB", one.kind.name(), one.figure.median);
    let told: Vec<String> = grows.iter().map(one).collect();
    format!("In ten minutes, by least squares: {}.", told.join(", "))
}

/// What a plot is called for those who cannot see it.
fn about(title: &str, take_away: Option<&String>) -> String {
    format!("{title}. {}", take_away.map_or("Not measured.", String::as_str))
}
