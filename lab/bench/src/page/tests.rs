//! The page of reports made by hand: complete, escaped, true where something is missing, and in need of nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::cases::{self, Case, Source, Store, WARM_UP_SECONDS};
use crate::machine::Machine;
use crate::trial::{Kills, Sample, Trial};

/// Plausible, different for everybody, the same each time.
fn trial(case: &Case, kind: Kind, repetition: u32) -> Trial {
    let rank = Kind::ALL.iter().position(|known| *known == kind).unwrap();
    let weight = [1.0, 6.2, 5.5, 6.8, 5.9, 12.0, 13.0, 0.51][rank] * (1.0 + 0.06 * f64::from(repetition));
    let rate = case.rate.map_or(3e6, f64::from);
    let stored = rate.min(2.8e6 / weight);
    let memory = if weight > 2.0 { 20.0 * weight } else { 7.8 * weight };
    let killed = case.name == "kill-9";
    let sample = |second: u32| Sample {
        seconds: f64::from(second),
        rss_mib: memory * (1.0 - 0.5 / f64::from(second + 1)),
        ..Sample::default()
    };
    Trial {
        case: case.name.clone(),
        consumer: kind.name().to_owned(),
        repetition,
        messages: 60_000,
        rate_held: rate,
        stored_per_second: (case.source == Source::Firehose).then_some(stored),
        cpu_us_per_message: weight
            * (0.9 + 400.0 / rate + f64::from(case.members) * 0.4 + f64::from(case.drivers) * 1e-8),
        rss_peak_mib: memory,
        rss_mib_per_ten_minutes: (case.seconds > 60).then_some(0.3),
        flush_own_ms: (kind != Kind::Telegraf).then_some((0.3 * weight, 0.7 * weight)),
        flush_seen_ms: Some((0.26 * weight, 0.5 * weight)),
        freshness_ms: (case.store == Store::Engine).then_some((260.0 + weight, 500.0 + 20.0 * weight)),
        lost: Some(if killed && kind == Kind::NodePublished { 1_234 } else { 0 }),
        duplicates: Some(if killed { 400 } else { 0 }),
        samples: (0..=WARM_UP_SECONDS + case.seconds).map(sample).collect(),
        ..Trial::default()
    }
}

fn every_trial(cases: &[Case]) -> Vec<Trial> {
    let of = |case: &Case| {
        let steps = (0..case.repetitions)
            .flat_map(|repetition| case.kinds.iter().map(move |kind| (*kind, repetition)));
        steps.map(|(kind, repetition)| trial(case, kind, repetition)).collect::<Vec<_>>()
    };
    cases.iter().flat_map(of).collect()
}

fn report(cases: &[Case], trials: Vec<Trial>) -> Report {
    let versions = BTreeMap::from([("milepost".to_owned(), "milepost 0.1.0 <x>".to_owned())]);
    let machine = Machine { cpu: "a <fast> & \"cheap\" one".to_owned(), versions, ..Machine::default() };
    let mut report = Report::new(machine, cases, None);
    trials.into_iter().for_each(|trial| report.add(trial));
    report
}

/// What the page's script is given, with plain spaces, as the tests are written.
fn page_of(cases: &[Case], trials: Vec<Trial>) -> Value {
    let page = of(&report(cases, trials)).unwrap().replace('\u{a0}', " ");
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(data).unwrap()
}

fn plot<'a>(page: &'a Value, title: &str) -> &'a Value {
    let plots = page["plots"].as_array().unwrap();
    plots.iter().find(|plot| plot["title"] == title).unwrap_or_else(|| panic!("no plot {title}"))
}

const TARGET: &str = "Stored against wanted";
const ENGINE: &str = "CPU a message by rate, Mosquitto → ClickHouse, QoS 1";
const FLEET: &str = "CPU a message as the fleet grows";
const OWN: &str = "Flush, by each one's own histogram";
const CEILING: &str = "Ceiling at QoS 0: firehose → null sink";
const TITLES: [&str; 12] = [
    TARGET,
    FLEET,
    CEILING,
    "Ceiling at QoS 1: firehose → null sink",
    ENGINE,
    "CPU a message by rate, Mosquitto → null sink, QoS 0",
    "Memory over time",
    "Memory over ten minutes",
    "Flush, as the sink saw it",
    OWN,
    "Freshness: published → in ClickHouse",
    "CPU a message as members join",
];

#[test]
fn a_full_run_has_every_plot_with_a_sentence_and_a_command() {
    let cases = cases::full();
    if let Some(path) = std::env::var_os("PAGE") {
        std::fs::write(path, of(&report(&cases, every_trial(&cases))).unwrap()).unwrap();
    }
    let page = page_of(&cases, every_trial(&cases));
    for title in TITLES {
        let plot = plot(&page, title);
        assert!(plot["take_away"].is_string(), "{title}");
        assert!(plot["command"].as_str().unwrap().starts_with("lab bench --full --only "), "{title}");
        let points = plot["points"].as_array().unwrap();
        // JSON has neither NaN nor infinity: serde writes null.
        let missing = |point: &Value| point["y"].is_null() && point["label"] == "";
        let whole = |point: &Value| {
            missing(point) || ["x", "y", "least", "most"].iter().all(|name| point[name].is_f64())
        };
        assert!(points.len() > 2 && points.iter().all(whole), "{title}: {points:?}");
    }
    assert_eq!(page["plots"].as_array().unwrap().len(), TITLES.len());
    let engine = plot(&page, ENGINE);
    for kind in Kind::ALL {
        assert!(engine["points"].as_array().unwrap().iter().any(|point| point["who"] == kind.name()));
    }
    let says = engine["take_away"].as_str().unwrap();
    assert!(says.contains("At 20k messages a second a message takes milepost 1.4"), "{says}");
    assert!(says.contains("and against that node 6.2 ×"), "{says}");
    assert!(plot(&page, FLEET)["take_away"].as_str().unwrap().contains("From 1k to 10M drivers"));
}

#[test]
fn who_loses_data_when_killed_is_not_recommended_and_says_so() {
    let cases = cases::full();
    let mut trials = every_trial(&cases);
    let page = page_of(&cases, trials.clone()).to_string();
    for wanted in [
        "**Run milepost**",
        "Loses data when killed, the cheapest first: **node-published** (6.8 × milepost's CPU), 1,234 of",
        "PUBACK on receipt (a crash loses a batch)\",\"0\",\"60000\",\"1234\",\"400\",\"0\",\"–\",\"**loses data**, **stores twice**",
        "Cheapest of all by CPU: floor (0.51 × milepost's CPU); it lost nothing when killed. What it is: the least",
    ] {
        assert!(page.contains(wanted), "no {wanted}: {page}");
    }

    for trial in trials.iter_mut().filter(|trial| trial.case == "kill-9" && trial.consumer == "milepost") {
        trial.lost = Some(1);
    }
    let page = page_of(&cases, trials.clone()).to_string();
    assert!(!page.contains("**Run milepost**") && page.contains("**Run bun**"), "{page}");

    let gone = Kills { gone: Some("it ended".to_owned()), ..Kills::default() };
    for trial in trials.iter_mut().filter(|trial| trial.case == "kill-9" && trial.consumer == "bun") {
        trial.kills = Some(gone.clone());
    }
    let page = page_of(&cases, trials.clone()).to_string();
    assert!(page.contains("**did not come back**: it ended") && !page.contains("**Run bun**"), "{page}");

    trials.retain(|trial| trial.case != "kill-9");
    let page = page_of(&cases, trials).to_string();
    assert!(page.contains("cannot be said from this run alone"), "{page}");
    assert!(!page.contains("**loses data**") && !page.contains("lost nothing when killed"), "{page}");
}

#[test]
fn an_interrupted_run_says_what_is_missing() {
    let cases = cases::full();
    let nothing = page_of(&cases, Vec::new());
    for title in TITLES {
        assert!(plot(&nothing, title)["points"].as_array().unwrap().is_empty(), "{title}");
    }
    let progress = nothing["progress"].to_string();
    assert!(progress.contains("\"0 of ") && progress.contains("This report is not complete"), "{progress}");

    let mut trials = every_trial(&cases);
    trials.retain(|trial| !(trial.case == "engine-5k-qos1" && trial.consumer == "bun"));
    for trial in trials.iter_mut().filter(|trial| trial.case == "engine-20k-qos1" && trial.consumer == "node")
    {
        trial.refused.push("the <generator> held 9 of 10".to_owned());
    }
    let sheds = trials.iter_mut().find(|trial| trial.case == "ceiling-qos0" && trial.consumer == "bun");
    sheds.unwrap().lost = Some(77_000);
    let page = page_of(&cases, trials);
    let notes = |title: &str| plot(&page, title)["notes"].to_string();
    assert!(notes(CEILING).contains("`ceiling-qos0`, bun: 77,000 of 180,000 lost"), "{page}");
    let cpu = notes(ENGINE);
    assert!(cpu.contains("`engine-5k-qos1`, bun: not reached."), "{cpu}");
    assert!(cpu.contains("node: 3 of 3 repetitions do not count: the <generator> held 9 of 10."), "{cpu}");
    assert!(cpu.contains("Of one repetition, all or some: `engine-10-qos1`, `engine-1k"), "{cpu}");
    assert!(notes(OWN).contains("telegraf: has no such figure."), "{}", notes(OWN));
    let points = plot(&page, ENGINE)["points"].as_array().unwrap();
    let gap = points.iter().find(|point| point["who"] == "bun" && point["x"] == 5_000.0).unwrap();
    assert!(gap["y"].is_null(), "the line is broken where nothing was measured: {gap}");
}

#[test]
fn a_case_that_was_not_asked_for_is_named_with_its_command() {
    let quick = cases::quick();
    let page = page_of(&quick, every_trial(&quick));
    let target = plot(&page, TARGET);
    assert!(target["points"].as_array().unwrap().is_empty(), "{target}");
    assert!(target["command"].as_str().unwrap().contains("--only target-10000k"), "{target}");
    assert!(target["notes"].to_string().contains("Not asked for in this run"), "{target}");
    assert!(!plot(&page, CEILING)["points"].as_array().unwrap().is_empty());
}

#[test]
fn texts_are_escaped_and_nothing_is_fetched() {
    let cases = cases::full();
    let mut trials = every_trial(&cases);
    trials[0].refused.push("</script><script>alert(1)</script>".to_owned());
    let page = of(&report(&cases, trials)).unwrap();
    assert!(page.contains("a \\u003cfast> & \\\"cheap\\\" one") && page.contains("0.1.0 \\u003cx>"));
    assert!(page.contains("\\u003cscript>alert(1)") && !page.contains("<script>alert(1)"));
    // The browser itself keeps to this; the library names the namespace of SVG.
    assert!(
        page.contains(
            "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\""
        )
    );
    let ours = [include_str!("page.html"), include_str!("page.js"), include_str!("style.css")].concat();
    for forbidden in
        ["http://", "https://", "url(", "@import", "<link", "<img", "src=", "innerHTML", "fetch("]
    {
        assert!(!ours.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn every_look_is_in_the_style_sheet_light_and_dark() {
    let style = include_str!("style.css");
    for look in 0..Kind::ALL.len() {
        assert_eq!(style.matches(&format!("--look-{look}: #")).count(), 2, "--look-{look}");
    }
}
