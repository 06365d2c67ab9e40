//! Encodes a closed batch into INSERT statements with their rows.
//!
//! Guarantee: positions are in the sort order of their table, rejects in order of arrival. The same
//! batch always gives the same bytes, so a retry sends exactly the bytes of the first attempt.
//!
//! The format is [RowBinary](milepost_decode::row_binary); the statement names the columns. The
//! columns are defined beside the fields, in the modules [position](milepost_decode::position) and
//! [reject](milepost_decode::reject).

use std::ops::Range;

use bytes::Bytes;

use super::batch::Batch;
use milepost_decode::position::{self, Position, Timestamp};
use milepost_decode::reject::{self, Reject};
use milepost_decode::row_binary::{DRIVER_ID, EVENTS, FENCES, Kind, Table, count_at};

/// Every table that the consumer inserts into.
pub static TABLES: [&Table; 2] = [&position::TABLE, &reject::TABLE];
/// Tables that only commands insert into.
static COMMAND_TABLES: [&Table; 2] = [&EVENTS, &FENCES];

/// Expected size of an encoded position, in bytes. A buffer of this size per row seldom has to
/// grow.
const POSITION_BYTES: usize = 96;
/// Expected size of an encoded reject, in bytes.
const REJECT_BYTES: usize = 512;
/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Returns the tables of the consumer and of the commands.
fn tables() -> impl Iterator<Item = &'static Table> {
    TABLES.into_iter().chain(COMMAND_TABLES)
}

/// One INSERT: statement, data, and number of rows.
#[derive(Debug, Clone)]
pub struct Insert {
    /// `INSERT INTO … FORMAT RowBinary`
    pub statement: String,
    pub body: Bytes,
    pub rows: usize,
}

/// Encodes a batch: an insert of its positions, if it has any, and then an insert of its rejects,
/// if it has any.
#[must_use]
pub fn encode(batch: Batch, database: &str) -> Vec<Insert> {
    let positions = insert(
        &position::TABLE,
        database,
        sorted(&batch.positions),
        POSITION_BYTES,
        Position::encode,
    );
    let rejects =
        insert(&reject::TABLE, database, batch.rejects.iter(), REJECT_BYTES, Reject::encode);
    positions.into_iter().chain(rejects).collect()
}

/// Returns the sort key of a row: the table's ORDER BY.
fn sort_key(position: &Position) -> impl Ord + '_ {
    (day(position.ts), &position.driver_id, position.ts, position.seq, position.lat, position.lng)
}

/// Returns the number of the day, UTC, since 1970-01-01.
fn day(ts: Timestamp) -> i64 {
    ts.unix_ms().div_euclid(DAY_MS)
}

/// Sorts the rows by [`sort_key`]. For speed, it sorts one integer per row, which stands for the
/// row. From the highest bit down, the integer consists of:
///
/// - 64 bits: eight bytes of the driver id, after the prefix that all ids share;
/// - 32 bits: milliseconds since the earliest row. They are 0 in all rows if the longest id has
///   more than eight bytes after the prefix, or if the rows span more time than fits into 32 bits;
/// - 32 bits: index of the row.
///
/// Rows whose integers differ only in the index are compared by their sort keys.
fn sorted(rows: &[Position]) -> impl ExactSizeIterator<Item = &Position> {
    // One pass over the rows: the prefix that all ids share, the longest id, and the span of time.
    let first_id = rows.first().map_or(&[][..], |row| row.driver_id.as_bytes());
    let (mut prefix_bytes, mut id_bytes_max) = (first_id.len(), 0);
    let (mut earliest, mut latest) =
        (Timestamp::from_unix_ms(i64::MAX), Timestamp::from_unix_ms(i64::MIN));
    for row in rows {
        let id = row.driver_id.as_bytes();
        id_bytes_max = id_bytes_max.max(id.len());
        while !id.starts_with(&first_id[..prefix_bytes]) {
            prefix_bytes -= 1;
        }
        earliest = earliest.min(row.ts);
        latest = latest.max(row.ts);
    }
    let ms_since_earliest =
        |ts: Timestamp| u32::try_from(ts.unix_ms().saturating_sub(earliest.unix_ms())).ok();
    let keys_have_times =
        id_bytes_max - prefix_bytes <= size_of::<u64>() && ms_since_earliest(latest).is_some();
    let row_of =
        |key: u128| &rows[usize::try_from(key & u128::from(u32::MAX)).expect("a row index")];
    let key_of = |(index, row): (u32, &Position)| {
        let mut id_part = [0; size_of::<u64>()];
        let suffix = &row.driver_id.as_bytes()[prefix_bytes..];
        let bytes = suffix.len().min(id_part.len());
        id_part[..bytes].copy_from_slice(&suffix[..bytes]);
        let time_part = ms_since_earliest(row.ts).filter(|_| keys_have_times).unwrap_or(0);
        u128::from(u64::from_be_bytes(id_part)) << 64
            | u128::from(time_part) << 32
            | u128::from(index)
    };
    let mut keys: Vec<u128> = (0..).zip(rows).map(key_of).collect();
    // The stable sort is faster here, because it merges sorted runs. The points of one array arrive
    // as such a run.
    keys.sort();
    let differ_only_in_index = |a: &u128, b: &u128| a >> 32 == b >> 32;
    for equal in keys.chunk_by_mut(differ_only_in_index).filter(|equal| equal.len() > 1) {
        equal.sort_unstable_by(|a, b| sort_key(row_of(*a)).cmp(&sort_key(row_of(*b))));
    }
    // The sort key begins with the day. A stable sort keeps the order within each day.
    if day(earliest) != day(latest) {
        keys.sort_by_key(|key| day(row_of(*key).ts));
    }
    keys.into_iter().map(row_of)
}

/// Encodes rows into an insert; `None` if there are no rows. `bytes_each`: expected bytes per row.
fn insert<'r, T: 'r>(
    table: &Table,
    database: &str,
    rows: impl ExactSizeIterator<Item = &'r T>,
    bytes_each: usize,
    encode_row: fn(&T, &mut Vec<u8>),
) -> Option<Insert> {
    let count = rows.len();
    let mut body = Vec::with_capacity(count * bytes_each);
    rows.for_each(|row| encode_row(row, &mut body));
    (count > 0).then(|| Insert {
        statement: table.statement(database),
        body: body.into(),
        rows: count,
    })
}

impl Insert {
    /// Returns a range of the rows as a separate insert. Returns `None` if the insert cannot be
    /// split: a file of another version may have columns that are not those of a known table. A
    /// range of all rows needs no split, and is always returned.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Option<Self> {
        if rows == (0..self.rows) {
            return Some(self.clone());
        }
        let table = tables().find(|table| self.statement.ends_with(&table.statement_end()))?;
        let begin = table.skip(&self.body, rows.start)?;
        let end = begin + table.skip(&self.body[begin..], rows.len())?;
        Some(Self {
            statement: self.statement.clone(),
            body: self.body.slice(begin..end),
            rows: rows.len(),
        })
    }

    /// Returns the insert without the rows of erased drivers, and the number of rows left out.
    /// `None` if the rows cannot be read, because the table or a column is unknown, as in a file of
    /// a newer version.
    #[must_use]
    pub fn without(&self, is_erased: impl Fn(&[u8]) -> bool) -> Option<(Self, usize)> {
        let kinds = self.columns()?;
        let (mut body, mut copy_from, mut at, mut erased) = (Vec::new(), 0, 0, 0);
        for _ in 0..self.rows {
            let begin = at;
            let mut is_row_erased = false;
            for (name, kind) in &kinds {
                let length = kind.length(&self.body[at..])?;
                if *name == DRIVER_ID {
                    // The length of the id comes before the id, in `prefix` bytes.
                    let (prefix, _) = count_at(&self.body[at..])?;
                    is_row_erased = is_erased(&self.body[at + prefix..at + length]);
                }
                at += length;
            }
            // Copy the rows between the previous erased row and this one.
            if is_row_erased {
                body.extend_from_slice(&self.body[copy_from..begin]);
                (copy_from, erased) = (at, erased + 1);
            }
        }
        if erased == 0 {
            return Some((self.clone(), 0));
        }
        body.extend_from_slice(&self.body[copy_from..at]);
        Some((
            Self { statement: self.statement.clone(), body: body.into(), rows: self.rows - erased },
            erased,
        ))
    }

    /// Returns the columns that the statement names; `None` if the table or a column is unknown. A
    /// statement of an older version names fewer columns.
    fn columns(&self) -> Option<Vec<(&'static str, Kind)>> {
        let (target, columns) = self.statement.strip_prefix("INSERT INTO ")?.split_once(" (")?;
        let (names, _) = columns.split_once(") FORMAT RowBinary")?;
        let table = tables().find(|table| target.rsplit('.').next() == Some(table.name))?;
        let column = |name: &str| table.columns.iter().find(|(column, _)| *column == name).copied();
        names.split(", ").map(column).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use milepost_decode::formats::Format;
    use milepost_decode::{Decoded, Decoder, Driver, Keep, Limits, Message, Source, Template};

    /// Returns an insert of ten positions and an insert of ten rejects. The rows differ in length.
    fn inserts() -> Vec<Insert> {
        let driver = Driver::Topic(Template::first());
        let source = Source::new("drivers/+/gps", driver, Format::Milepost, Keep::All);
        let decoder = Decoder::new(&[source], Limits::default());
        let mut decoded = Decoded::default();
        for row in 0..10_usize {
            let topic = format!("drivers/{}/gps", "d".repeat(1 + row * 7));
            for payload in [
                format!(r#"{{"lat":{row},"lng":1,"a":{row},"b":"{}"}}"#, "x".repeat(row * 50)),
                "x".repeat(row * 50),
            ] {
                let message = Message::new(topic.as_bytes(), payload.as_bytes());
                decoder.decode(message, Timestamp::from_unix_ms(1_795_500_000_000), &mut decoded);
            }
        }
        let Decoded { positions, rejects, .. } = decoded;
        encode(Batch { positions, rejects, ..Batch::default() }, "fleet")
    }

    #[test]
    fn rows_are_encoded_in_the_tables_sort_order() {
        let limits = Limits { fix_age_max: Duration::from_secs(200 * 86_400), ..Limits::default() };
        let decoder = Decoder::new(&[Source::milepost("drivers/+/gps")], limits);
        let mut random = fastrand::Rng::with_seed(1);
        // The fixes of a case span one day, several days, or more milliseconds than fit into 32
        // bits.
        for (prefix, suffix_chars_max, interval_s) in [
            ("", 3, 1),
            ("d", 3, 86_400),
            ("sim-bench-", 8, 43_200),
            ("sim-bench-", 8, 86_400 * 50),
            ("sim-bench-", 9, 86_400),
            ("", 54, 86_400),
            ("", 54, 43_200),
        ] {
            let mut decoded = Decoded::default();
            for _ in 0..1_000 {
                let suffix: String = (0..random.usize(1..=suffix_chars_max))
                    .map(|_| random.choice(['-', '0', 'a']).unwrap())
                    .collect();
                let [lat, ts, seq] = [2, 3, 2].map(|values| random.i64(1..=values));
                let payload =
                    format!(r#"{{"lat":{lat},"lng":1,"ts":{},"seq":{seq}}}"#, ts * interval_s);
                let topic = format!("drivers/{prefix}{suffix}/gps");
                let message = Message::new(topic.as_bytes(), payload.as_bytes());
                decoder.decode(message, Timestamp::from_unix_ms(DAY_MS * 200), &mut decoded);
            }
            let ordered: Vec<_> = sorted(&decoded.positions).collect();
            assert_eq!((ordered.len(), decoded.rejects.len()), (1_000, 0));
            let day_and_driver =
                |row: &Position| (row.ts.unix_ms() / DAY_MS, row.driver_id.as_bytes().to_vec());
            assert!(
                ordered.is_sorted_by_key(|row| day_and_driver(row)),
                "{prefix} {suffix_chars_max} {interval_s}"
            );
            assert!(
                ordered.is_sorted_by(|a, b| sort_key(a) <= sort_key(b)),
                "{prefix} {suffix_chars_max} {interval_s}"
            );
        }
        assert_eq!(sorted(&[]).len(), 0);
    }

    #[test]
    fn insert_can_be_split_at_any_row() {
        for insert in inserts() {
            assert_eq!(insert.rows, 10);
            for cut in 0..=insert.rows {
                let [first, second] =
                    [0..cut, cut..insert.rows].map(|rows| insert.part(rows).unwrap());
                assert_eq!([first.body, second.body].concat(), insert.body, "cut at row {cut}");
                assert_eq!((first.rows, second.rows), (cut, insert.rows - cut));
            }
            let of_another_version = Insert {
                statement: "INSERT INTO fleet.positions (a, b) FORMAT RowBinary".into(),
                ..insert
            };
            assert!(of_another_version.part(0..1).is_none());
        }
    }

    #[test]
    fn erasing_a_driver_keeps_all_other_rows() {
        for insert in inserts() {
            for erased in 0..insert.rows {
                let id = "d".repeat(1 + erased * 7);
                let (remaining, left_out) =
                    insert.without(|driver| driver == id.as_bytes()).unwrap();
                assert_eq!((remaining.rows, left_out), (9, 1));
                let parts = [0..erased, erased + 1..insert.rows]
                    .map(|rows| insert.part(rows).unwrap().body);
                assert_eq!(remaining.body, parts.concat(), "without row {erased}");
            }
            assert_eq!(insert.without(|_| false).unwrap().0.body, insert.body);
            assert_eq!(insert.without(|_| true).unwrap().0.rows, 0);
            // An insert of an older version has fewer columns; an insert of a newer version has
            // unknown columns.
            let older = "INSERT INTO other.positions (driver_id, seq) FORMAT RowBinary";
            let body = Bytes::from_static(b"\x01a\0\0\0\0\x01b\0\0\0\x07");
            let older = Insert { statement: older.into(), body, rows: 2 };
            let (remaining, left_out) = older.without(|driver| driver == b"a").unwrap();
            assert_eq!(
                (&*remaining.body, remaining.rows, left_out),
                (&b"\x01b\0\0\0\x07"[..], 1, 1)
            );
            let newer = "INSERT INTO fleet.positions (driver_id, more) FORMAT RowBinary";
            assert!(Insert { statement: newer.into(), ..insert }.without(|_| true).is_none());
        }
    }

    #[test]
    fn statements_name_their_columns() {
        let statement = reject::TABLE.statement("fleet");
        assert_eq!(
            statement,
            "INSERT INTO fleet.rejects (received_at, topic, driver_id, reason, detail, payload, \
             payload_bytes, count) FORMAT RowBinary"
        );
    }
}
