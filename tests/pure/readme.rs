//! Checks that every measured number of README.md is in the table that it comes from.
//!
//! `lab/story/docs.py --check` checks the story's sentences: it compares them with
//! `docs/story.json`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A fragment of README.md with numbers, and the source of these numbers.
struct Source {
    claim: &'static str,
    file: &'static str,
    /// Text of the file. The numbers are below this text.
    below: &'static str,
    /// Beginnings of the lines, rows or paragraphs with the numbers. The first match counts.
    lines: &'static [&'static str],
}

const RESULTS: &str = "docs/results.md";
const DEMO: &str = "<!-- make demo: begin -->";
const COST: &str = "`make bench`, commit ";
const CONDITIONS: &str = "| milepost = 1 |";
const SHARE: &str = "### ClickHouse's share";

const SOURCES: [Source; 9] = [
    Source {
        claim: "0 of 300,000 positions lost, 0 stored twice",
        file: RESULTS,
        below: DEMO,
        lines: &["    sent ", "    lost ", "    duplicates "],
    },
    Source {
        claim: "within 286 ms of being sent",
        file: RESULTS,
        below: DEMO,
        lines: &["    freshness p50/p99 "],
    },
    Source {
        claim: "2.0 µs of CPU a message at 20,000 messages/s (QoS 1, into ClickHouse), 13.9 MiB of \
               memory at 50,000 messages/s (QoS 0, into a sink",
        file: RESULTS,
        below: COST,
        lines: &[CONDITIONS, "| milepost |"],
    },
    Source { claim: "`make bench` at commit d2205415", file: RESULTS, below: COST, lines: &[""] },
    Source { claim: "21.7 µs and 177.2 MiB", file: RESULTS, below: COST, lines: &["| node |"] },
    Source {
        claim: "300,000 positions sent, 0 lost, 0 duplicates",
        file: RESULTS,
        below: DEMO,
        lines: &["    sent ", "    lost ", "    duplicates "],
    },
    Source {
        claim: "8,000/s by one member; before: merged by ClickHouse's default | 14.0 | 10.4 |",
        file: RESULTS,
        below: SHARE,
        lines: &["8,000 positions/s", "| 1 | 1.6 |", "Before migration 307, one member:"],
    },
    Source {
        claim: "milepost, 20,000/s at QoS 1 into ClickHouse | | 2.0 |",
        file: RESULTS,
        below: COST,
        lines: &[CONDITIONS, "| milepost |"],
    },
    Source {
        claim: "a node of EMQX 5.8.9, in and out, 30,000/s at QoS 1 | | 49 to 78 |",
        file: "docs/brokers.md",
        below: "EMQX was measured by hand",
        lines: &["| EMQX ", "| 30,000 messages/s"],
    },
];

/// Numbers that are not measured: versions, conditions and limits.
const STATED: [&str; 17] = [
    "(30 s, QoS 1, ",
    "MQTT 5 ",
    "200 of them",
    "5,000 drivers for 30 s",
    "Rust 1.89",
    "Python 3,",
    "2 cores",
    "Install 0.1.0",
    "x86_64",
    "aarch64",
    "glibc 2.28",
    "at most 30 days ago",
    "for a million positions",
    "[day 1]",
    "[day-1.md]",
    "200 lines of Rust",
    "Apache-2.0",
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the numbers of a text, without the commas between thousands. `20k/s` counts as 20000.
fn numbers(text: &str) -> BTreeSet<String> {
    let chars: Vec<char> = text.chars().collect();
    let is_digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let mut found = BTreeSet::new();
    let mut at = 0;
    while at < chars.len() {
        if !is_digit(at) {
            at += 1;
            continue;
        }
        let mut number = String::new();
        while is_digit(at) || (matches!(chars.get(at), Some('.' | ',')) && is_digit(at + 1)) {
            if chars[at] != ',' {
                number.push(chars[at]);
            }
            at += 1;
        }
        if chars.get(at) == Some(&'k') && chars.get(at + 1) == Some(&'/') {
            number.push_str("000");
        }
        found.insert(number);
    }
    found
}

/// Returns the prose of README.md on one line, without code, commands, link targets and the story's
/// sentences.
fn prose() -> String {
    let readme = read("README.md");
    let (before, story) = readme.split_once("<!-- make story: begin -->").unwrap();
    let (_, after) = story.split_once("<!-- make story: end -->").unwrap();
    let lines = before.lines().chain(after.lines()).filter(|line| !line.starts_with("    "));
    let text = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    text.split("](")
        .enumerate()
        .map(|(index, part)| match part.split_once(')') {
            Some((_, rest)) if index > 0 => format!("] {rest}"),
            _ => part.to_owned(),
        })
        .collect()
}

/// Returns the first line of code, table row or paragraph after `below` that begins with `prefix`.
fn line(document: &str, below: &str, prefix: &str) -> String {
    let (_, rest) = document.split_once(below).unwrap_or_else(|| panic!("no {below:?}"));
    let mut lines = rest.lines().skip_while(|line| !line.starts_with(prefix));
    let found = lines.next().unwrap_or_else(|| panic!("no line {prefix:?} below {below:?}"));
    let is_text =
        |line: &&str| !line.is_empty() && !line.starts_with('|') && !line.starts_with("    ");
    let is_prose = is_text(&found);
    let further = lines.take_while(is_text).filter(|_| is_prose);
    std::iter::once(found).chain(further).collect::<Vec<_>>().join(" ")
}

/// Returns the cells of the rows between the two comments `NAME: begin` and `NAME: end` in
/// results.md.
fn table(name: &str) -> Vec<Vec<String>> {
    let results = read(RESULTS);
    let (_, rest) = results.split_once(&format!("<!-- {name}: begin -->")).unwrap();
    let (table, _) = rest.split_once(&format!("<!-- {name}: end -->")).unwrap();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    table.lines().filter(|line| line.starts_with("| ")).skip(1).map(cells).collect()
}

/// Returns README.md's row about inserts of 5,000 rows, computed from scale.md. README.md states
/// ClickHouse's CPU time in seconds for a million rows; scale.md states it in milliseconds for one
/// insert.
fn insert_row() -> String {
    let scale = read("docs/scale.md");
    let row = line(&scale, "ClickHouse's CPU for one insert", "| 5,000 |");
    let ms = |column: usize| {
        let cell = row.split('|').nth(column).unwrap().trim().trim_end_matches(" ms");
        cell.parse::<f64>().unwrap() / 5.0
    };
    format!(
        "inserts of 5,000 rows, without merges; before: the tables of 0.1.0 | {:.1} | {:.1} |",
        ms(3),
        ms(4)
    )
}

/// Returns README.md's clause about the recorded faults, counted in results.md.
fn fault_clause() -> String {
    let rows = table("make faults");
    let harmless = rows.iter().filter(|cells| cells[3] == "0").count();
    format!("of {} recorded faults {harmless} lose nothing", rows.len())
}

#[test]
fn readme_has_the_numbers_of_its_sources() {
    let readme = prose();
    for Source { claim, file, below, lines } in &SOURCES {
        assert!(readme.contains(claim), "README.md does not have: {claim}");
        let document = read(file);
        let found: BTreeSet<String> =
            lines.iter().flat_map(|prefix| numbers(&line(&document, below, prefix))).collect();
        // The QoS is a condition, which a table may state elsewhere.
        let missing: Vec<String> = numbers(&claim.replace("QoS 0", "").replace("QoS 1", ""))
            .into_iter()
            .filter(|number| !found.contains(number))
            .collect();
        assert!(
            missing.is_empty(),
            "{file} does not have {missing:?}, which README.md states: {claim}"
        );
    }
    for computed in [insert_row(), fault_clause()] {
        assert!(readme.contains(&computed), "README.md does not have: {computed}");
    }
}

#[test]
fn readme_has_no_number_without_a_source() {
    let (mut unexplained, computed) = (prose(), [insert_row(), fault_clause()]);
    let claims = SOURCES.iter().map(|source| source.claim);
    for claim in claims.chain(computed.iter().map(String::as_str)) {
        unexplained = unexplained.replace(claim, " ");
    }
    for stated in STATED {
        assert!(unexplained.contains(stated), "README.md no longer states {stated:?}");
        unexplained = unexplained.replacen(stated, " ", 1);
    }
    // Ignore inline code (keys, values and examples), and the numbers of list items.
    let prose: String = unexplained.split('`').step_by(2).collect();
    let without_list_numbers =
        (1..=5).fold(prose, |text, item| text.replace(&format!(" {item}. **"), " "));
    let without_source = numbers(&without_list_numbers);
    assert!(
        without_source.is_empty(),
        "README.md has numbers without a source: {without_source:?}"
    );
}
