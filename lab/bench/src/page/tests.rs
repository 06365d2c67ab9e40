//! The page of reports made by hand: complete, escaped, true where something is missing, and in need of nothing.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::cases::{self, Case, Source, Store, WARM_UP_SECONDS};
use crate::consumer::Kind;
use crate::kill::Kills;
use crate::trial::{Sample, Trial};

fn machine() -> Machine {
    Machine {
        date: "2026-11-21T12:00:00Z".to_owned(),
        cpu: "a <fast> & \"cheap\" one".to_owned(),
        cores: 2,
        memory_mib: 8_000,
        kernel: "6.1".to_owned(),
        versions: BTreeMap::from([("milepost".to_owned(), "milepost 0.1.0 <x>".to_owned())]),
    }
}

/// Plausible, different for everybody, the same each time.
fn trial(case: &Case, kind: Kind, repetition: u32) -> Trial {
    let rank = Kind::ALL.iter().position(|known| *known == kind).unwrap();
    let weight = match kind.name() {
        "milepost" => 1.0,
        "floor" => 0.51,
        "bun" => 5.5,
        "bun-published" => 5.9,
        "node" => 6.2,
        "node-published" => 6.8,
        _ => 7.0 + rank as f64,
    };
    let weight = weight * (1.0 + 0.06 * f64::from(repetition));
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

/// With plain spaces, as the tests are written.
fn page_of(cases: &[Case], trials: Vec<Trial>) -> String {
    of(&Report::made_by_hand(machine(), cases, trials)).replace('\u{a0}', " ")
}

/// The page's part with this heading.
fn part<'a>(page: &'a str, title: &str) -> &'a str {
    let from = page.find(&format!("<h3>{title}</h3>")).unwrap_or_else(|| panic!("no plot {title}"));
    let part = &page[from..];
    &part[..part.find("</figure>").unwrap()]
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
        let page = of(&Report::made_by_hand(machine(), &cases, every_trial(&cases)));
        std::fs::write(Path::new(&path), page).unwrap();
    }
    let page = page_of(&cases, every_trial(&cases));
    for title in TITLES {
        let part = part(&page, title);
        for wanted in
            ["<svg viewBox=", "role=\"img\" aria-label=", "class=\"take-away\"", "lab bench --full --only "]
        {
            assert!(part.contains(wanted), "{title}: no {wanted}");
        }
        assert!(!part.contains("NaN") && !part.contains("inf"), "{title}");
    }
    assert_eq!(page.matches("<figure>").count(), TITLES.len());
    for kind in Kind::ALL {
        assert!(part(&page, ENGINE).contains(&format!(">{}</text>", kind.name())), "{}", kind.name());
    }
    let cpu = part(&page, ENGINE);
    assert!(cpu.contains("At 20k messages a second a message takes milepost 1.4"), "{cpu}");
    assert!(cpu.contains("and against that node 6.2 ×"), "{cpu}");
    assert!(part(&page, FLEET).contains("From 1k to 10M drivers"));
}

#[test]
fn who_loses_data_when_killed_is_not_recommended_and_says_so() {
    let cases = cases::full();
    let mut trials = every_trial(&cases);
    let page = page_of(&cases, trials.clone());
    assert!(page.contains("<b>Run milepost</b>"), "{page}");
    assert!(page.contains(
        "Loses data when killed, the cheapest first: <b>node-published</b> (6.8 × milepost's CPU), 1,234 of"
    ));
    assert!(page.contains("✗ loses data when killed</span> 1,234 of 60,000 lost, 400 stored twice"));
    assert!(
        page.contains("Cheapest of all by CPU: floor (0.51 × milepost's CPU); it lost nothing when killed. What it is: the least")
    );

    for trial in trials.iter_mut().filter(|trial| trial.case == "kill-9" && trial.consumer == "milepost") {
        trial.lost = Some(1);
    }
    let page = page_of(&cases, trials.clone());
    assert!(!page.contains("<b>Run milepost</b>") && page.contains("<b>Run bun</b>"), "{page}");

    let gone = Kills { gone: Some("it ended".to_owned()), ..Kills::default() };
    for trial in trials.iter_mut().filter(|trial| trial.case == "kill-9" && trial.consumer == "bun") {
        trial.kills = Some(gone.clone());
    }
    let page = page_of(&cases, trials.clone());
    assert!(page.contains("✗ did not come back when killed") && !page.contains("<b>Run bun</b>"), "{page}");

    trials.retain(|trial| trial.case != "kill-9");
    let page = page_of(&cases, trials);
    assert!(page.contains("cannot be said from this run alone") && page.contains("? not measured"), "{page}");
    assert!(!page.contains("✓") && !page.contains("✗"), "{page}");
}

#[test]
fn an_interrupted_run_says_what_is_missing() {
    let cases = cases::full();
    let nothing = page_of(&cases, Vec::new());
    assert_eq!(nothing.matches("Not measured.</p>").count(), TITLES.len());
    assert!(nothing.contains("0 of ") && nothing.contains("This report is not complete"));

    let mut trials = every_trial(&cases);
    trials.retain(|trial| !(trial.case == "engine-5k-qos1" && trial.consumer == "bun"));
    for trial in trials.iter_mut().filter(|trial| trial.case == "engine-20k-qos1" && trial.consumer == "node")
    {
        trial.refused.push("the <generator> held 9 of 10".to_owned());
    }
    let sheds = trials.iter_mut().find(|trial| trial.case == "ceiling-qos0" && trial.consumer == "bun");
    sheds.unwrap().lost = Some(77_000);
    let page = page_of(&cases, trials);
    assert!(
        part(&page, CEILING).contains("<code>ceiling-qos0</code>, bun: 77,000 of 180,000 lost"),
        "{page}"
    );
    let cpu = part(&page, ENGINE);
    assert!(cpu.contains("<code>engine-5k-qos1</code>, bun: not reached."), "{cpu}");
    assert!(
        cpu.contains("node: 3 of 3 repetitions do not count: the &lt;generator&gt; held 9 of 10."),
        "{cpu}"
    );
    assert!(
        cpu.contains("Of one repetition, all or some: <code>engine-10-qos1</code>, <code>engine-1k"),
        "{cpu}"
    );
    let own = part(&page, OWN);
    assert!(own.contains("telegraf: has no such figure."), "{own}");
}

#[test]
fn a_case_that_was_not_asked_for_is_named_with_its_command() {
    let quick = cases::quick();
    let page = page_of(&quick, every_trial(&quick));
    let target = part(&page, TARGET);
    assert!(target.contains("Not measured.") && target.contains("--only target-10000k"), "{target}");
    assert!(target.contains("Not asked for in this run"), "{target}");
    assert!(part(&page, CEILING).contains("<svg"));
}

#[test]
fn texts_are_escaped_and_nothing_is_fetched() {
    let cases = cases::full();
    let mut trials = every_trial(&cases);
    trials[0].refused.push("<script>alert(1)</script>".to_owned());
    let page = page_of(&cases, trials);
    assert!(page.contains("a &lt;fast&gt; &amp; &quot;cheap&quot; one") && page.contains("0.1.0 &lt;x&gt;"));
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    for forbidden in ["<script", "http://", "https://", "url(", "@import", "<link", "<img", "src="] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn every_look_is_in_the_style_sheet_light_and_dark() {
    let style = include_str!("style.css");
    for look in 0..plot::LOOKS {
        assert_eq!(style.matches(&format!("--look-{look}: #")).count(), 2, "--look-{look}");
        assert!(style.contains(&format!(".look-{look} {{")), ".look-{look}");
    }
}
