//! Checks the documents of this repository: every link leads to a file and to one of its headings,
//! and prose wraps at 100 columns, in comments of Rust as well.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of dependencies and of build output.
const FOREIGN: [&str; 7] =
    ["target", "node_modules", "test-results", "bench-results", ".local", ".git", "dist"];

/// Returns all files below a folder that have this extension.
fn files_with_extension(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect_files(Path::new(env!("CARGO_MANIFEST_DIR")), extension, &mut found);
    found
}

fn collect_files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !FOREIGN.contains(&name) {
            collect_files(&path, extension, found);
        } else if path.extension().is_some_and(|known| known == extension) {
            found.push(path);
        }
    }
}

/// Returns the lines outside of code blocks: in code, `#` begins no heading, and `](` no link.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence && !line.starts_with("    ")
    })
}

/// Returns GitHub's anchor of a heading: "Stop, restart, leave" becomes `stop-restart-leave`.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

fn anchors(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap();
    let headings = prose(&text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn every_link_leads_to_a_file_and_heading() {
    let (mut links, mut broken) = (0, Vec::new());
    for path in files_with_extension("md") {
        let text = fs::read_to_string(&path).unwrap();
        for target in prose(&text).flat_map(|line| line.split("](").skip(1)) {
            let target = target.split([')', ' ']).next().unwrap();
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file =
                if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let exists = file.exists() && (heading.is_empty() || anchors(&file).contains(heading));
            if !exists {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(links > 100, "{links} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn anchors_are_named_as_on_github() {
    assert_eq!(anchor(" /readyz"), "readyz");
    assert_eq!(anchor(" What was run, and what was not"), "what-was-run-and-what-was-not");
    assert_eq!(anchor(" Session expiry and `queue_length`"), "session-expiry-and-queue_length");
}

/// Returns the numbers of the lines of prose that have more than 100 columns and could be wrapped.
/// Tables, code, HTML, long code spans and long addresses are not wrapped. `lines`: each line of
/// the file, with the Markdown in it.
fn overlong_lines<'t>(lines: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<usize> {
    let (mut is_code, mut found) = (false, Vec::new());
    for (number, (line, markdown)) in (1..).zip(lines) {
        let is_fence = markdown.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_block = ["|", "    ", "<"].iter().any(|start| markdown.starts_with(start));
        if is_fence || is_code || is_block {
            continue;
        }
        let text = markdown.trim_start().trim_start_matches("- ");
        let spaces_outside_of_spans = text.split('`').step_by(2).any(|part| part.contains(' '));
        if line.chars().count() > 100 && spaces_outside_of_spans {
            found.push(number);
        }
    }
    found
}

/// Returns the lines of a Rust file, each with its Markdown: the text of the comment, or an empty
/// string if the line is not a comment.
fn comments(source: &str) -> impl Iterator<Item = (&str, &str)> {
    source.lines().map(|line| {
        let begun = line.trim_start().strip_prefix("//");
        let text = begun.map(|text| text.strip_prefix(['/', '!']).unwrap_or(text));
        (line, text.map_or("", |text| text.strip_prefix(' ').unwrap_or(text)))
    })
}

/// Short lines give small diffs and fit into a narrow window.
#[test]
fn prose_in_markdown_and_comments_wraps_at_100_columns() {
    let long = "word ".repeat(21);
    let markdown = format!("{long}\n| {long} |\n    {long}\n```\n{long}\n```\n`{long}`");
    assert_eq!(overlong_lines(markdown.lines().map(|line| (line, line))), [1]);
    let source = format!("let s = {long};\n    /// {long}\n//! | {long}\n// ok\n//!     {long}");
    assert_eq!(overlong_lines(comments(&source)), [2]);

    let mut found = Vec::new();
    let mut check = |path: &Path, lines: Vec<usize>| {
        found.extend(lines.into_iter().map(|line| format!("{}:{line}", path.display())));
    };
    for path in files_with_extension("md") {
        let text = fs::read_to_string(&path).unwrap();
        check(&path, overlong_lines(text.lines().map(|line| (line, line))));
    }
    for path in files_with_extension("rs") {
        check(&path, overlong_lines(comments(&fs::read_to_string(&path).unwrap())));
    }
    assert!(found.is_empty(), "{found:#?}");
}
