//! The lines of `/readyz` that docs/operations.md explains are those that the code writes.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the Rust files of a folder and of those below it, without folders of tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Joins string literals that continue on the next line.
fn joined(source: &str) -> String {
    let mut parts = source.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

/// Returns what a line has in common with every line of its kind: runs of two words or more, which
/// end at a colon, and before a word with a number or an ellipsis.
fn fixed(line: &str) -> Vec<String> {
    let mut runs = vec![Vec::new()];
    for word in line.split(' ') {
        let is_filled_in = word.contains(|c: char| c.is_ascii_digit() || c == '…');
        if !is_filled_in {
            runs.last_mut().unwrap().push(word.trim_end_matches(':'));
        }
        if is_filled_in || word.ends_with(':') {
            runs.push(Vec::new());
        }
    }
    runs.iter().filter(|run| run.len() > 1).map(|run| run.join(" ")).collect()
}

#[test]
fn explained_readyz_lines_are_written_by_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "crates"] {
        sources(&root.join(folder), &mut files);
    }
    let code: String =
        files.iter().map(|path| joined(&fs::read_to_string(path).unwrap())).collect();

    let operations = fs::read_to_string(root.join("docs/operations.md")).unwrap();
    let (_, rest) = operations.split_once("## /readyz").unwrap();
    let (section, _) = rest.split_once("## Alerts").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut explained = 0;
    for row in rows {
        let (cell, _) = row.split_once(" | ").unwrap();
        for line in cell.split('`').step_by(2) {
            explained += 1;
            for words in fixed(line) {
                assert!(code.contains(&words), "no line of the code has {words:?}, of: {line}");
            }
        }
    }
    assert!(explained > 20, "{explained} lines are explained");
}
