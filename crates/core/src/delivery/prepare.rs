//! Decides which rows an attempt sends, and which row may go to quarantine: none of an erased
//! driver.
//!
//! Guarantee: one token never stands for different rows. If rows of erased drivers are left out,
//! the token contains the digest of the list as well.

use std::time::Instant;

use super::events::Outcome;
use super::sink::{Attempt, FailureKind};
use crate::encode::Insert;
use crate::erased::Erased;
use crate::screened::{NotScreened, ReadList, Screened};

/// The decision about an attempt.
#[derive(Debug)]
pub enum Prepared {
    /// Send these rows with this token.
    Send(Screened, Attempt),
    /// Send nothing, and report this outcome.
    Report(Outcome),
}

/// Leaves out the rows of erased drivers when an attempt begins. `rows`: the attempt's piece;
/// `None`: the insert cannot be split, because it has the columns of another version.
#[must_use]
pub fn prepare(
    rows: Option<Insert>,
    mut attempt: Attempt,
    list: &ReadList,
    now: Instant,
) -> Prepared {
    let Some(rows) = rows else { return Prepared::Report(Outcome::Unsplittable) };
    let insert = match list.screen(rows, now) {
        Ok(insert) => insert,
        Err(NotScreened::UnknownColumns) => return Prepared::Report(Outcome::Unsplittable),
        // The watcher reads the list again, so a retry may succeed.
        Err(error @ (NotScreened::Unread | NotScreened::TooOld(_))) => {
            let (kind, why) = (FailureKind::Transient, error.to_string());
            return Prepared::Report(Outcome::Failed { kind, why });
        }
    };
    if insert.rows == 0 {
        return Prepared::Report(Outcome::LeftOut { rows: insert.left_out() as u64 });
    }
    attempt.token = insert.token(attempt.token);
    Prepared::Send(insert, attempt)
}

/// Returns the outcome of a row that must not go to quarantine, because its driver is erased.
/// `None`: write its file.
#[must_use]
pub fn quarantine_outcome(row: &Insert, erased: &Erased) -> Option<Outcome> {
    let (others, _) = row.without(|id| erased.contains_bytes(id))?;
    (others.rows == 0).then_some(Outcome::LeftOut { rows: 1 })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::screened::LIST_AGE_MAX;

    const ROWS: &str = "INSERT INTO fleet.positions (driver_id) FORMAT RowBinary";

    fn rows(statement: &str) -> Insert {
        let body = Bytes::from_static(b"\x01a\x01b");
        Insert { statement: statement.to_owned(), body, rows: 2 }
    }

    fn erased(ids: &[&str]) -> Arc<Erased> {
        Arc::new(Erased::new(ids.iter().map(|id| (*id).to_owned())))
    }

    /// Prepares an attempt with the token `t`, and a list of this age.
    fn prepared(rows: Option<Insert>, ids: &[&str], age: Duration) -> Prepared {
        let read_at = Instant::now();
        let attempt = Attempt { token: "t".to_owned(), timeout: Duration::from_secs(1) };
        prepare(rows, attempt, &ReadList::new(erased(ids), read_at), read_at + age)
    }

    #[test]
    fn token_names_the_erased_list_if_rows_are_left_out() {
        let sent = |ids: &[&str]| match prepared(Some(rows(ROWS)), ids, Duration::ZERO) {
            Prepared::Send(insert, attempt) => (insert.rows, attempt.token),
            Prepared::Report(outcome) => panic!("{outcome:?}"),
        };
        assert_eq!(sent(&[]), (2, "t".to_owned()));
        assert_eq!(sent(&["c"]), (2, "t".to_owned()));
        assert_eq!(sent(&["a"]), (1, format!("t-{}", erased(&["a"]).digest())));
        assert_ne!(sent(&["a"]).1, sent(&["b"]).1, "other rows");
    }

    #[test]
    fn attempt_that_sends_nothing_has_its_outcome_at_once() {
        let newer = rows("INSERT INTO fleet.positions (driver_id, more) FORMAT RowBinary");
        let cases = [
            (Some(rows(ROWS)), &["a", "b"][..], Duration::ZERO, "LeftOut { rows: 2 }"),
            (Some(rows(ROWS)), &[], LIST_AGE_MAX, "Failed { kind: Transient"),
            (Some(newer), &["a"], Duration::ZERO, "Unsplittable"),
            (None, &[], Duration::ZERO, "Unsplittable"),
        ];
        for (rows, ids, age, expected) in cases {
            match prepared(rows, ids, age) {
                Prepared::Report(outcome) => {
                    let outcome = format!("{outcome:?}");
                    assert!(outcome.starts_with(expected), "{outcome}, not {expected}");
                }
                Prepared::Send(insert, _) => {
                    panic!("{} rows are sent, not {expected}", insert.rows)
                }
            }
        }
    }

    #[test]
    fn oversized_row_of_an_erased_driver_has_no_file() {
        let row =
            |body: &'static [u8]| Insert { body: Bytes::from_static(body), rows: 1, ..rows(ROWS) };
        let outcome = |body| quarantine_outcome(&row(body), &erased(&["a"]));
        assert!(matches!(outcome(b"\x01a"), Some(Outcome::LeftOut { rows: 1 })));
        assert!(outcome(b"\x01b").is_none());
    }
}
