//! The report as one HTML page: whom to run and why at the top, a plot for each question below it.
//!
//! Everything on it is computed here and travels as JSON; `page.js` turns it into text and, with Observable Plot, into
//! plots. The library is read from the peers' `node_modules` and put into the page, which loads nothing: its
//! Content-Security-Policy forbids it. What was not measured is said to be missing, so that a page of an interrupted
//! run is a true one.
//!
//! To look at a page of every plot without measuring for hours:
//!
//! ```sh
//! npm ci --prefix lab/bench/peers && PAGE=/tmp/page.html cargo test -p lab-bench --lib page::tests
//! chromium --headless --no-sandbox --screenshot=/tmp/page.png --window-size=1200,6000 file:///tmp/page.html
//! ```

mod questions;
#[cfg(test)]
mod tests;
mod verdict;

use anyhow::Result;
use lab_harness::table::Table;
use serde_json::json;

use self::questions::command;
use self::verdict::Summary;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::markdown::{OTHERS_CORES_MAX, not_measured};
use crate::peers;
use crate::report::{Report, Row};

/// What the plots are drawn with, in the order in which it is loaded.
const LIBRARY: [&str; 2] = ["d3/dist/d3.min.js", "@observablehq/plot/dist/plot.umd.min.js"];

/// The whole page.
pub(crate) fn of(report: &Report) -> Result<String> {
    let Machine { date, cpu, cores, memory_mib, kernel, .. } = &report.machine;
    let (others, counted) = report.others_and_counted();
    let planned = report.planned();
    let mut progress = vec![format!(
        "{date} · {cores} cores ({cpu}) · {memory_mib} MiB · Linux {kernel} · everything on this one machine, so only \
         the ratios carry over"
    )];
    progress.push(format!("{counted} of {planned} steps count."));
    if counted < planned {
        progress.push("**This report is not complete**: each plot says what is missing.".to_owned());
    }
    if others > OTHERS_CORES_MAX {
        progress.push(format!(
            "✗ Other processes took up to {others:.1} cores meanwhile: repeat this on a quiet machine."
        ));
    }
    let summary = Summary::of(report);
    let data = json!({
        "names": Kind::ALL.map(Kind::name),
        "progress": progress,
        "verdict": summary.verdict(),
        "who": summary.costs(),
        "plots": questions::all(report),
        "guarantees": summary.guarantees(),
        "reproduce": command(&[verdict::KILLED]),
        "cases": cases(report),
        "limits": not_measured(report),
        "versions": report.machine.versions_in_words(),
    });
    let library = |file: &&str| std::fs::read_to_string(peers::folder().join("node_modules").join(file));
    // Without npm the page has its sentences and tables, and says what is missing.
    let library: Result<Vec<String>, _> = LIBRARY.iter().map(library).collect();
    Ok(include_str!("page/page.html")
        .replace("/* style.css */", include_str!("page/style.css"))
        .replace("{ data }", &serde_json::to_string(&data)?.replace('<', "\\u003c"))
        .replace("/* page.js */", include_str!("page/page.js"))
        .replace("/* library */", &library.unwrap_or_default().join("\n")))
}

/// What was asked for, and how much of it counts.
fn cases(report: &Report) -> Table {
    let mut table = Table::of(["case", "what", "counted"]);
    for case in &report.cases {
        let row = |row: &Row<'_>| format!("{} {}/{}", row.kind.name(), row.good.len(), case.repetitions);
        let counted: Vec<String> = report.rows(case).iter().map(row).collect();
        table.rows.push(vec![format!("`{}`", case.name), case.title.clone(), counted.join(", ")]);
    }
    table
}
