//! The report as one HTML page: who to run and why at the top, a plot for each question below it.
//!
//! The page needs nothing else: no script, no font, no network. It is read on a phone, in the dark and on paper, so
//! the style sheet decides the colours, and no fact is told by a colour alone. Every sentence is computed from the
//! figures; what was not measured is said to be missing, so that a page of an interrupted run is a true one.
//!
//! To look at a page of every plot without measuring for hours:
//!
//! ```sh
//! PAGE=/tmp/page.html cargo test -p lab-bench --lib page::tests
//! chromium --headless --no-sandbox --screenshot=/tmp/page.png --window-size=1200,6000 file:///tmp/page.html
//! ```

mod axis;
mod figures;
mod measured;
mod plot;
mod summary;
#[cfg(test)]
mod tests;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::figures::Shown;
use self::summary::Summary;
use crate::cases::Case;
use crate::machine::Machine;
use crate::report::{OTHERS_CORES_MAX, Report};

/// The whole page.
pub(crate) fn of(report: &Report) -> String {
    let Machine { date, cpu, cores, memory_mib, kernel, versions } = report.machine();
    let summary = Summary::of(report);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "milepost beside its peers, " (date) }
                style { (PreEscaped(include_str!("page/style.css"))) }
            }
            body {
                header {
                    h1 { "milepost beside its peers" }
                    p { (date) " · " (cores) " cores (" (cpu) ") · " (memory_mib) " MiB · Linux " (kernel)
                        " · everything on this one machine, so only the ratios carry over" }
                    (progress(report))
                }
                main {
                    (summary.show())
                    section #plots {
                        h2 { "One question, one plot" }
                        p.note { "Points are medians over the repetitions, the strokes through them least and most." }
                        div.plots { @for shown in figures::all(report) { (figure(&shown)) } }
                    }
                    (summary.show_guarantees())
                    (cases(report))
                    section #limits {
                        h2 { "Not measured, and how to read this" }
                        ul { @for line in report.not_measured() { li { (prose(&line)) } } }
                    }
                }
                footer {
                    p { @for (index, (name, version)) in versions.iter().enumerate() {
                        @if index > 0 { " · " } (name) " " (version.trim_start_matches("milepost "))
                    } }
                    p { "All figures, least and most: the Markdown file of the same name; every second's sample: the JSON file." }
                }
            }
        }
    };
    page.into_string()
}

/// How much of the run is here, and whether somebody else was at work.
fn progress(report: &Report) -> Markup {
    let planned = report.planned();
    let trials = || {
        let of_case = |case| report.rows(case).into_iter().flat_map(|row| row.good);
        report.cases().iter().flat_map(of_case)
    };
    let counted = trials().count();
    let others = trials().map(|trial| trial.others_cores).fold(0.0, f64::max);
    html! {
        p { (counted) " of " (planned) " steps count."
            @if counted < planned { " " b { "This report is not complete" } ": each plot says what is missing." } }
        @if others > OTHERS_CORES_MAX {
            p.warning { "! Other processes took up to " (format!("{others:.1}")) " cores meanwhile: repeat this on a quiet machine." }
        }
    }
}

fn figure(shown: &Shown) -> Markup {
    let names: Vec<&str> = shown.cases.iter().map(|case| case.name.as_str()).collect();
    html! {
        figure {
            h3 { (shown.title) }
            @match &shown.plot {
                Some(plot) => { (plot) },
                None => { p.missing { "Not measured." } },
            }
            figcaption {
                @if let Some(take_away) = &shown.take_away { p.take-away { (take_away) } }
                @if !shown.notes.is_empty() {
                    ul.note { @for note in &shown.notes { li { (prose(note)) } } }
                }
                @if !names.is_empty() { p.command { code { (command(&names)) } } }
            }
        }
    }
}

/// What was asked for, and how much of it counts.
fn cases(report: &Report) -> Markup {
    let counts = |case: &Case| -> Vec<String> {
        let row = |row: &crate::report::Row<'_>| {
            format!("{} {}/{}", row.kind.name(), row.good.len(), case.repetitions)
        };
        report.rows(case).iter().map(row).collect()
    };
    html! {
        section #cases {
            h2 { "Cases, and repetitions that count" }
            div.scroll tabindex="0" role="region" aria-label="Cases" {
                table {
                    thead { tr { th scope="col" { "case" } th scope="col" { "what" } th scope="col" { "counted" } } }
                    tbody {
                        @for case in report.cases() {
                            tr { th scope="row" { code { (case.name) } } td { (case.title) } td { (counts(case).join(", ")) } }
                        }
                    }
                }
            }
        }
    }
}

/// What measures these cases again.
fn command(names: &[&str]) -> String {
    let only: String = names.iter().map(|name| format!(" --only {name}")).collect();
    format!("lab bench --full{only}")
}

/// A sentence with `code` and **weight** as in Markdown; everything else as it stands.
fn prose(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else {
                @for (index, part) in part.split("**").enumerate() {
                    @if index % 2 == 1 { b { (part) } } @else { (part) }
                }
            }
        }
    }
}
