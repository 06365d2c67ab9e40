//! The names that milepost's own queries define in their WITH clauses.
//!
//! ClickHouse first resolves a name to a column of the table that is read, and only then to a
//! definition in an outer query. So a column of `positions` with one of these names would change
//! the results of milepost's views, or make the views fail.

use std::collections::BTreeSet;

use super::files::MIGRATIONS;

/// Returns the names, from all files of `sql/`.
pub(super) fn names_in_queries() -> BTreeSet<&'static str> {
    MIGRATIONS.iter().flat_map(|migration| names_in(migration.sql)).collect()
}

/// Returns the names that the WITH clauses of this SQL define.
fn names_in(sql: &str) -> BTreeSet<&str> {
    let words = words(sql);
    let mut names = BTreeSet::new();
    // For each open WITH clause, the depth of its parentheses.
    let (mut depth, mut clauses) = (0_usize, Vec::new());
    for (at, word) in words.iter().enumerate() {
        match *word {
            "(" => depth += 1,
            ")" => {
                depth = depth.saturating_sub(1);
                clauses.retain(|clause| *clause <= depth);
            }
            "WITH" => clauses.push(depth),
            "SELECT" => clauses.retain(|clause| *clause != depth),
            // `value AS name` or `name AS (SELECT …)`.
            "AS" if clauses.last() == Some(&depth) => {
                let name = match words.get(at + 1) {
                    Some(&"(") => at.checked_sub(1).and_then(|before| words.get(before)),
                    after => after,
                };
                names.extend(name.filter(|name| is_name(name)).copied());
            }
            _ => {}
        }
    }
    names
}

/// Returns whether a word is a name: keywords are in upper case.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Splits SQL into names, keywords and parentheses, without comments, strings and other characters.
fn words(sql: &str) -> Vec<&str> {
    let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    let mut words = Vec::new();
    for line in lines {
        // After splitting at the quotes, every second piece is a string. Skip the strings.
        for code in line.split('\'').step_by(2) {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let is_start = |c: char| is_word(c) || matches!(c, '(' | ')');
            let mut remaining = code;
            while let Some(start) = remaining.find(is_start) {
                remaining = &remaining[start..];
                // A parenthesis is a word of its own.
                let end = remaining.find(|c: char| !is_word(c)).unwrap_or(remaining.len()).max(1);
                words.push(&remaining[..end]);
                remaining = &remaining[end..];
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_definitions_of_with_clauses_are_found() {
        let sql = "CREATE VIEW v AS -- a comment AS no\n\
                   WITH (SELECT max(a) AS inner_one FROM t) AS newest, 5 AS limit_m,\n\
                       'x AS y' AS text,\n\
                       (xs, k) -> arrayMap(x -> x AS z, xs) AS mapped,\n\
                       rows AS (WITH 1 AS one SELECT two AS not_this FROM t)\n\
                   SELECT three AS nor_this FROM rows\n\
                   WHERE four IN (WITH 2 AS deep SELECT deep AS nor)";
        let expected = ["deep", "limit_m", "mapped", "newest", "one", "rows", "text"];
        assert_eq!(names_in(sql).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn names_that_the_views_define_are_found() {
        let names = names_in_queries();
        for name in ["flat", "half", "server", "since", "until", "first_day", "parts", "kept"] {
            assert!(names.contains(name), "{name}");
        }
        assert!(names.len() < 150, "{names:?}");
        for name in ["battery", "ignition", "driver_id", "ts", "lat", "speed"] {
            assert!(!names.contains(name), "{name}");
        }
    }
}
