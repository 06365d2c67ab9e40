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
use serde_json::json;

use crate::kind::Kind;
use crate::markdown::{OTHERS_CORES_MAX, chapters};
use crate::peers;
use crate::report::Report;

/// What the plots are drawn with, in the order in which it is loaded.
const LIBRARY: [&str; 2] = ["d3/dist/d3.min.js", "@observablehq/plot/dist/plot.umd.min.js"];

/// The whole page.
pub(crate) fn of(report: &Report) -> Result<String> {
    let (others, counted) = report.others_and_counted();
    let planned = report.planned();
    let mut progress = vec![report.machine.date.clone(), report.machine.in_words()];
    progress.push(format!("{counted} of {planned} steps count."));
    if counted < planned {
        progress.push("**This report is not complete**: each plot says what is missing.".to_owned());
    }
    if others > OTHERS_CORES_MAX {
        progress.push(format!(
            "**Other processes took up to {others:.1} cores** meanwhile: repeat this on a quiet machine."
        ));
    }
    let data = json!({
        "names": Kind::ALL.map(Kind::name),
        "progress": progress,
        "verdict": verdict::of(report),
        "plots": questions::all(report),
        "chapters": chapters(report),
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
