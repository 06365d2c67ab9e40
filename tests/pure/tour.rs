//! Checks that docs/tour.md shows real code: every block equals the lines of its source file that
//! the marker above it names. `MILEPOST_UPDATE_TOUR=1 cargo test --test pure -- tour` rewrites the
//! blocks.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Maximum lines of one block, so that a stop fits on a screen.
const LINES_MAX: usize = 40;
const STOPS_MAX: usize = 15;

/// Returns the lines that `<!-- tour: FILE | FIRST | LAST -->` names: from the first line that
/// begins with FIRST to the next one that begins with LAST, without their common indentation.
fn block(marker: &str) -> String {
    let body = marker.strip_prefix("<!-- tour: ").unwrap().strip_suffix(" -->").unwrap();
    let [file, first, last] = *body.split(" | ").collect::<Vec<_>>() else { panic!("{marker}") };
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(file);
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str, prefix: &str| line.trim_start().starts_with(prefix);
    let begin = lines
        .iter()
        .position(|line| begins(line, first))
        .unwrap_or_else(|| panic!("{marker}: no line begins with {first:?}"));
    let indent = |line: &str| line.len() - line.trim_start().len();
    // A closing brace ends the block that the first line opened.
    let is_end =
        |line: &&str| begins(line, last) && (last != "}" || indent(line) == indent(lines[begin]));
    let length = lines[begin + 1..]
        .iter()
        .position(is_end)
        .unwrap_or_else(|| panic!("{marker}: no later line begins with {last:?}"));
    let block_lines = &lines[begin..=begin + 1 + length];
    assert!(block_lines.len() <= LINES_MAX, "{marker}: {} lines", block_lines.len());
    let common_indent = block_lines
        .iter()
        .filter(|line| !line.trim().is_empty())
        .map(|line| indent(line))
        .min()
        .unwrap();
    let mut out = String::new();
    for line in block_lines {
        writeln!(out, "{}", line.get(common_indent..).unwrap_or_default()).unwrap();
    }
    out
}

/// Returns the page with every block replaced by its current source, and the number of blocks.
fn with_blocks(page: &str) -> (String, usize) {
    let (mut out, mut blocks, mut lines) = (String::new(), 0, page.lines());
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if line.starts_with("<!-- tour: ") {
            assert_eq!(lines.next(), Some("```rust"), "{line}");
            lines.by_ref().find(|line| *line == "```").expect("the block has no end");
            write!(out, "```rust\n{}```\n", block(line)).unwrap();
            blocks += 1;
        }
    }
    (out, blocks)
}

#[test]
fn tour_shows_the_code_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tour.md");
    let page = fs::read_to_string(&path).unwrap();
    let (current, stops) = with_blocks(&page);
    assert!((10..=STOPS_MAX).contains(&stops), "{stops} stops");
    if std::env::var_os("MILEPOST_UPDATE_TOUR").is_some() {
        fs::write(&path, &current).unwrap();
        return;
    }
    assert!(
        page == current,
        "docs/tour.md differs from the code: MILEPOST_UPDATE_TOUR=1 cargo test --test pure -- tour"
    );
}
