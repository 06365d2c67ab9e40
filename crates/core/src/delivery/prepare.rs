//! Decides which rows an attempt sends, and whether a row that is too large to insert goes to
//! quarantine.
//!
//! Rows of erased drivers are neither sent nor written to quarantine. There is one exception: a row
//! that is too large goes to quarantine if this version does not know its columns, because it then
//! cannot tell the row's driver.
//!
//! Guarantee: one token never stands for different rows. If rows of erased drivers are left out,
//! the token also contains the digest of the list of erased drivers.

use std::time::Instant;

use super::events::Outcome;
use super::sink::{Attempt, FailureKind};
use crate::encode::Insert;
use crate::erased::Erased;
use crate::screened::{ErasedSnapshot, NotScreened, Screened};

/// The decision about an attempt.
#[derive(Debug)]
pub enum Prepared {
    /// Send these rows with this token.
    Send(Screened, Attempt),
    /// Send nothing, and report this outcome.
    Report(Outcome),
}

/// Prepares an attempt: leaves out the rows of erased drivers. `rows`: the piece of the batch to
/// insert; `None` if the piece could not be cut out of the insert, because the insert has the
/// columns of another version. `snapshot`: the list of erased drivers.
#[must_use]
pub fn prepare(
    rows: Option<Insert>,
    mut attempt: Attempt,
    snapshot: &ErasedSnapshot,
    now: Instant,
) -> Prepared {
    let Some(rows) = rows else { return Prepared::Report(Outcome::UnknownColumns) };
    let insert = match snapshot.screen(rows, now) {
        Ok(insert) => insert,
        Err(NotScreened::UnknownColumns) => return Prepared::Report(Outcome::UnknownColumns),
        // src/app/schema.rs keeps reading the list of erased drivers, so a retry may succeed.
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

/// Returns the outcome to report for a row that is too large, if its driver is erased; `None` if
/// the row goes to quarantine.
#[must_use]
pub fn outcome_instead_of_quarantine(row: &Insert, erased: &Erased) -> Option<Outcome> {
    let (remaining, _) = row.without(|id| erased.contains_bytes(id))?;
    (remaining.rows == 0).then_some(Outcome::LeftOut { rows: 1 })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::screened::LIST_AGE_MAX;

    const STATEMENT: &str = "INSERT INTO fleet.positions (driver_id) FORMAT RowBinary";

    fn rows(statement: &str) -> Insert {
        let body = Bytes::from_static(b"\x01a\x01b");
        Insert { statement: statement.to_owned(), body, rows: 2 }
    }

    fn erased(ids: &[&str]) -> Arc<Erased> {
        Arc::new(Erased::new(ids.iter().map(|id| (*id).to_owned())))
    }

    /// Prepares an attempt with the token `t`. `ids`: the erased drivers. `age`: the time since
    /// their list was read.
    fn prepared(rows: Option<Insert>, ids: &[&str], age: Duration) -> Prepared {
        let read_at = Instant::now();
        let attempt = Attempt { token: "t".to_owned(), timeout: Duration::from_secs(1) };
        prepare(rows, attempt, &ErasedSnapshot::new(erased(ids), read_at), read_at + age)
    }

    #[test]
    fn token_has_the_erased_list_digest_if_rows_are_left_out() {
        let sent = |ids: &[&str]| match prepared(Some(rows(STATEMENT)), ids, Duration::ZERO) {
            Prepared::Send(insert, attempt) => (insert.rows, attempt.token),
            Prepared::Report(outcome) => panic!("{outcome:?}"),
        };
        assert_eq!(sent(&[]), (2, "t".to_owned()));
        assert_eq!(sent(&["c"]), (2, "t".to_owned()));
        assert_eq!(sent(&["a"]), (1, format!("t-{}", erased(&["a"]).digest())));
        assert_ne!(sent(&["a"]).1, sent(&["b"]).1, "different rows must have different tokens");
    }

    #[test]
    fn attempt_that_is_not_sent_reports_its_outcome_at_once() {
        let newer = rows("INSERT INTO fleet.positions (driver_id, more) FORMAT RowBinary");
        let cases = [
            (Some(rows(STATEMENT)), &["a", "b"][..], Duration::ZERO, "LeftOut { rows: 2 }"),
            (Some(rows(STATEMENT)), &[], LIST_AGE_MAX, "Failed { kind: Transient"),
            (Some(newer), &["a"], Duration::ZERO, "UnknownColumns"),
            (None, &[], Duration::ZERO, "UnknownColumns"),
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
    fn oversized_row_of_an_erased_driver_is_not_quarantined() {
        let row = |body: &'static [u8]| Insert {
            body: Bytes::from_static(body),
            rows: 1,
            ..rows(STATEMENT)
        };
        let outcome = |body| outcome_instead_of_quarantine(&row(body), &erased(&["a"]));
        assert!(matches!(outcome(b"\x01a"), Some(Outcome::LeftOut { rows: 1 })));
        assert!(outcome(b"\x01b").is_none());
    }
}
