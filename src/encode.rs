//! A closed batch becomes the bytes of its INSERT statements, once.
//!
//! Guarantee: rows are sorted by the table's order, and the same batch always gives the same bytes, so that
//! a retry repeats exactly what was sent before. Format: RowBinary, columns named in the statement.

use bytes::Bytes;
use twox_hash::XxHash3_128;

use crate::batch::Batch;
use crate::decode::Reject;
use crate::position::Position;

const POSITION_COLUMNS: &str =
    "driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at";
const REJECT_COLUMNS: &str = "received_at, topic, driver_id, reason, detail, payload, payload_bytes, count";

/// One INSERT: the statement, its data, and how many rows that is.
#[derive(Debug, Clone)]
pub struct Insert {
    /// `INSERT INTO … FORMAT RowBinary`
    pub statement: String,
    /// The rows.
    pub body: Bytes,
    /// How many.
    pub rows: usize,
    /// XXH3-128 of statement and body.
    pub content_hash: u128,
}

impl Insert {
    /// `body` holds `rows` rows.
    #[must_use]
    pub fn new(statement: String, body: Bytes, rows: usize) -> Self {
        let mut hasher = XxHash3_128::new();
        hasher.write(statement.as_bytes());
        hasher.write(&body);
        Self { statement, body, rows, content_hash: hasher.finish_128() }
    }

    /// The deduplication token: a 128-bit hash of statement, body and `ambiguous_ends`, the number of
    /// attempts so far that may or may not have been committed. A server that died in one of those can
    /// know the token and not the rows, so the next attempt needs a fresh one.
    #[must_use]
    pub fn token(&self, ambiguous_ends: u32) -> String {
        let mut hasher = XxHash3_128::new();
        hasher.write(&self.content_hash.to_le_bytes());
        hasher.write(&ambiguous_ends.to_le_bytes());
        format!("{:032x}", hasher.finish_128())
    }
}

/// The inserts of a batch: its positions, its rejects, or both.
#[must_use]
pub fn encode(mut batch: Batch, database: &str) -> Vec<Insert> {
    let mut inserts = Vec::with_capacity(2);
    if !batch.positions.is_empty() {
        batch.positions.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        inserts.push(Insert::new(
            format!("INSERT INTO {database}.positions ({POSITION_COLUMNS}) FORMAT RowBinary"),
            rows(&batch.positions, 96, encode_position),
            batch.positions.len(),
        ));
    }
    if !batch.rejects.is_empty() {
        inserts.push(Insert::new(
            format!("INSERT INTO {database}.rejects ({REJECT_COLUMNS}) FORMAT RowBinary"),
            rows(&batch.rejects, 512, encode_reject),
            batch.rejects.len(),
        ));
    }
    inserts
}

/// Each table that is inserted into, and the columns that this takes, with commas.
#[must_use]
pub fn targets() -> [(&'static str, &'static str); 2] {
    [("positions", POSITION_COLUMNS), ("rejects", REJECT_COLUMNS)]
}

/// ORDER BY of the table.
fn order(position: &Position) -> impl Ord + '_ {
    (&position.driver_id, position.ts, position.seq, position.lat, position.lng)
}

fn rows<T>(rows: &[T], bytes_each: usize, encode_row: fn(&T, &mut Vec<u8>)) -> Bytes {
    let mut body = Vec::with_capacity(rows.len() * bytes_each);
    for row in rows {
        encode_row(row, &mut body);
    }
    body.into()
}

/// The columns of `POSITION_COLUMNS`, in that order.
fn encode_position(position: &Position, out: &mut Vec<u8>) {
    put_string(position.driver_id.as_str().as_bytes(), out);
    out.extend_from_slice(&position.ts.unix_ms().to_le_bytes());
    out.extend_from_slice(&position.seq.to_le_bytes());
    out.extend_from_slice(&position.lat.e7().to_le_bytes());
    out.extend_from_slice(&position.lng.e7().to_le_bytes());
    out.extend_from_slice(&position.speed.cms().to_le_bytes());
    out.extend_from_slice(&position.heading.cdeg().to_le_bytes());
    out.extend_from_slice(&position.alt.dm().to_le_bytes());
    out.extend_from_slice(&position.acc.dm().to_le_bytes());
    out.extend_from_slice(&position.received_at.unix_ms().to_le_bytes());
}

/// The columns of `REJECT_COLUMNS`, in that order.
fn encode_reject(reject: &Reject, out: &mut Vec<u8>) {
    out.extend_from_slice(&reject.received_at.unix_ms().to_le_bytes());
    put_string(reject.topic.as_bytes(), out);
    put_string(reject.driver_id.as_bytes(), out);
    put_string(reject.reason.name().as_bytes(), out);
    put_string(reject.detail.as_bytes(), out);
    put_string(&reject.payload, out);
    out.extend_from_slice(&reject.payload_bytes.to_le_bytes());
    out.extend_from_slice(&reject.count.to_le_bytes());
}

/// RowBinary's String: the length as unsigned LEB128, then the bytes.
fn put_string(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text.len();
    while rest >= 0x80 {
        out.push(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).expect("less than 0x80"));
    out.extend_from_slice(text);
}
