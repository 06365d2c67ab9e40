//! Screened inserts: inserts without the rows of erased drivers.
//!
//! Guarantee: no insert starts with a list of erased drivers that is older than [`LIST_AGE_MAX`]. A
//! sink accepts [`Screened`] inserts only, and only [`ErasedSnapshot::screen`] makes them. The sink
//! checks the list's age again before it sends the first byte of the rows.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::encode::Insert;
use super::erased::Erased;

/// A list of erased drivers of this age is too old for an insert to start. `milepost erase` waits
/// longer than this before it reports that no row of the driver is left.
pub const LIST_AGE_MAX: Duration = Duration::from_secs(35);

/// The list of erased drivers, and when it was read. The default was never read, so no insert may
/// start with it.
#[derive(Debug, Clone, Default)]
pub struct ErasedSnapshot {
    erased: Arc<Erased>,
    read_at: Option<Instant>,
}

/// Why an insert does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotScreened {
    #[error("the list of erased drivers has not been read yet, so nothing is inserted")]
    Unread,
    #[error("the list of erased drivers is {} s old, so nothing is inserted", .0.as_secs())]
    TooOld(Duration),
    #[error(
        "the insert has the columns of another version of milepost, so rows of erased drivers \
         cannot be left out"
    )]
    UnknownColumns,
}

impl ErasedSnapshot {
    #[must_use]
    pub fn new(erased: Arc<Erased>, read_at: Instant) -> Self {
        Self { erased, read_at: Some(read_at) }
    }

    /// Returns this snapshot with `equal` in place of its list. The caller has checked that both
    /// lists name the same drivers. A list that has not changed must keep its `Arc`, because
    /// `Member::erased` counts the holders of each `Arc`.
    #[must_use]
    pub fn with_equal_list(&self, equal: Arc<Erased>) -> Self {
        Self { erased: equal, read_at: self.read_at }
    }

    #[must_use]
    pub fn erased(&self) -> &Arc<Erased> {
        &self.erased
    }

    /// Returns the time since the list was read; `None` if it was never read.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.read_at.map(|read_at| now.saturating_duration_since(read_at))
    }

    /// Leaves out the rows of erased drivers.
    ///
    /// # Errors
    /// The list was never read or is too old, or the insert has columns of another version while a
    /// driver is erased.
    pub fn screen(&self, insert: Insert, now: Instant) -> Result<Screened, NotScreened> {
        let list_age = ListAge { read_at: self.read_at.ok_or(NotScreened::Unread)? };
        list_age.check(now)?;
        let (insert, left_out) = if self.erased.is_empty() {
            (insert, 0)
        } else {
            insert
                .without(|id| self.erased.contains_bytes(id))
                .ok_or(NotScreened::UnknownColumns)?
        };
        Ok(Screened { insert, left_out, erased: Arc::clone(&self.erased), list_age })
    }
}

/// The time at which a list of erased drivers was read. The rows of an insert were checked against
/// that list.
#[derive(Debug, Clone, Copy)]
pub struct ListAge {
    read_at: Instant,
}

impl ListAge {
    /// Checks whether an insert may start `now`. A sink calls this just before it sends the first
    /// byte of the rows. The list may have become too old since the rows were checked: the process
    /// may have been paused, or may have waited for a connection.
    ///
    /// # Errors
    /// The list is at least [`LIST_AGE_MAX`] old.
    pub fn check(self, now: Instant) -> Result<(), NotScreened> {
        let age = now.saturating_duration_since(self.read_at);
        if age >= LIST_AGE_MAX { Err(NotScreened::TooOld(age)) } else { Ok(()) }
    }
}

/// An insert without rows of erased drivers. It keeps the list that its rows were checked against,
/// because `Member::erased` counts the holders of each list.
#[derive(Debug)]
pub struct Screened {
    insert: Insert,
    left_out: usize,
    erased: Arc<Erased>,
    list_age: ListAge,
}

impl Screened {
    /// Returns the read time of the list, so that the sink can check its age again.
    #[must_use]
    pub fn list_age(&self) -> ListAge {
        self.list_age
    }

    /// Returns the number of rows that were left out because their driver is erased.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns the deduplication token for these rows. If rows were left out, it differs from
    /// `token`, because one token must never stand for different rows.
    #[must_use]
    pub fn token(&self, token: String) -> String {
        if self.left_out == 0 { token } else { format!("{token}-{}", self.erased.digest()) }
    }
}

impl Deref for Screened {
    type Target = Insert;

    fn deref(&self) -> &Insert {
        &self.insert
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn insert(statement: &str) -> Insert {
        Insert { statement: statement.to_owned(), body: Bytes::from_static(b"\x01a\x01b"), rows: 2 }
    }

    #[test]
    fn insert_needs_a_recently_read_erased_list() {
        let (read_at, statement) =
            (Instant::now(), "INSERT INTO fleet.positions (driver_id) FORMAT RowBinary");
        let screened = |list: &ErasedSnapshot, age| {
            list.screen(insert(statement), read_at + age).map(|screened| screened.rows)
        };
        assert_eq!(screened(&ErasedSnapshot::default(), Duration::ZERO), Err(NotScreened::Unread));
        let list = ErasedSnapshot::new(Arc::new(Erased::new(["a".to_owned()])), read_at);
        assert_eq!(screened(&list, LIST_AGE_MAX - Duration::from_millis(1)), Ok(1));
        assert_eq!(screened(&list, LIST_AGE_MAX), Err(NotScreened::TooOld(LIST_AGE_MAX)));
    }

    #[test]
    fn columns_of_another_version_pass_while_no_driver_is_erased() {
        let (now, newer) =
            (Instant::now(), "INSERT INTO fleet.positions (driver_id, more) FORMAT RowBinary");
        let empty = ErasedSnapshot::new(Arc::default(), now);
        assert_eq!(empty.screen(insert(newer), now).map(|screened| screened.rows), Ok(2));
        let list = ErasedSnapshot::new(Arc::new(Erased::new(["a".to_owned()])), now);
        assert_eq!(
            list.screen(insert(newer), now).map(|screened| screened.rows),
            Err(NotScreened::UnknownColumns)
        );
    }
}
