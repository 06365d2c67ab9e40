//! Refuses answers that lack their end.
//!
//! A proxy that speaks HTTP/1.0 with ClickHouse cannot see that an answer was cut off, and passes
//! it on as a whole one: a list would be shorter, and nobody would notice. So an answer counts only
//! if it came as an LZ4 frame, whose end the client library checks, or if it has the rows that
//! `X-ClickHouse-Summary` counts.

use clickhouse::error::Error as ClientError;
use clickhouse::query::{BytesCursor, Query, RowCursor};
use clickhouse::{QuerySummary, RowOwned, RowRead};

/// Reads the rows of a query, and fails if the answer lacks its end.
pub trait FetchWhole: Sized {
    /// Returns all rows.
    fn fetch_whole<T: RowOwned + RowRead + Send>(
        self,
    ) -> impl Future<Output = Result<Vec<T>, ClientError>> + Send;

    /// Returns the first row, if there is one.
    fn fetch_whole_optional<T: RowOwned + RowRead + Send>(
        self,
    ) -> impl Future<Output = Result<Option<T>, ClientError>> + Send;
}

impl FetchWhole for Query {
    async fn fetch_whole<T: RowOwned + RowRead + Send>(self) -> Result<Vec<T>, ClientError> {
        let (mut cursor, mut rows) = (summed(self).fetch::<T>()?, Vec::new());
        while let Some(row) = cursor.next().await? {
            rows.push(row);
        }
        check_rows(&cursor)?;
        Ok(rows)
    }

    async fn fetch_whole_optional<T: RowOwned + RowRead + Send>(
        self,
    ) -> Result<Option<T>, ClientError> {
        Ok(self.fetch_whole().await?.into_iter().next())
    }
}

/// Asks ClickHouse for a summary that counts all rows, for which it buffers the answer. Without
/// this, the summary of a long answer counts only the rows of its beginning.
pub(super) fn summed(query: Query) -> Query {
    query.with_setting("wait_end_of_query", "1")
}

/// Checks the answer of a cursor that has returned its last row.
///
/// # Errors
/// The answer lacks its end, or is not ClickHouse's.
pub fn check_rows<T>(cursor: &RowCursor<T>) -> Result<(), ClientError> {
    let (received, decoded) = (cursor.received_bytes(), cursor.decoded_bytes());
    check(received != decoded, cursor.summary(), cursor.returned_rows())
}

/// Checks an answer in TSVRaw that was read to its end. `text`: the answer.
pub(super) fn check_lines(cursor: &BytesCursor, text: &str) -> Result<(), ClientError> {
    let (received, decoded) = (cursor.received_bytes(), cursor.decoded_bytes());
    let lines = text.matches('\n').count() as u64; // a last line without its end does not count
    check(received != decoded, cursor.summary(), lines)
}

/// `is_compressed`: the client library has decoded an LZ4 frame up to its end.
fn check(
    is_compressed: bool,
    summary: Option<&QuerySummary>,
    rows: u64,
) -> Result<(), ClientError> {
    if is_compressed {
        return Ok(());
    }
    // An old ClickHouse may send a summary that does not count them.
    let counted = summary.map(|summary| summary.result_rows().unwrap_or(0));
    match counted {
        Some(counted) if rows >= counted => Ok(()),
        Some(counted) => Err(ClientError::BadResponse(format!(
            "the answer was cut off: it has {rows} rows, X-ClickHouse-Summary counts {counted}"
        ))),
        None => Err(ClientError::BadResponse(
            "the answer has no X-ClickHouse-Summary: is this ClickHouse?".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::ClickHouse;
    use milepost_config::Config;

    /// Returns a client of a server that answers every query with these headers and this body, as
    /// a proxy passes them on.
    async fn client_of(headers: &'static str, body: &'static [u8]) -> ClickHouse {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", body.len());
                let head = format!("{head}{headers}Connection: close\r\n\r\n");
                stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
            }
        });
        let config = Config::parse(&format!("[clickhouse]\nurl = '{url}'")).unwrap();
        ClickHouse::new(&config.clickhouse).unwrap()
    }

    const THREE: &str = "X-ClickHouse-Summary: {\"result_rows\":\"3\"}\r\n";
    const LZ4: &str = "Content-Encoding: lz4\r\n";
    /// An LZ4 frame of the text `a\nb\nc\n`, in one uncompressed block.
    const FRAME: &[u8] =
        &[4, 34, 77, 24, 0x60, 0x40, 0x82, 6, 0, 0, 0x80, b'a', 10, b'b', 10, b'c', 10, 0, 0, 0, 0];

    #[tokio::test]
    async fn answer_without_its_end_is_not_a_list() {
        let whole = [(THREE, &b"a\nb\nc\n"[..]), (LZ4, FRAME)];
        for (headers, body) in whole {
            for end in 0..=body.len() {
                let clickhouse = client_of(headers, &body[..end]).await;
                let rows = clickhouse.ask::<1>("asking", "SELECT x").await;
                assert_eq!(rows.is_ok(), end == body.len(), "{headers}{end}: {rows:?}");
            }
        }
        let proxy = client_of("", b"a\nb\nc\n").await;
        assert!(proxy.ask::<1>("asking", "SELECT x").await.is_err());
    }

    #[tokio::test]
    async fn typed_rows_without_their_end_are_an_error() {
        // The header: one column n of the type UInt8.
        let body = b"\x01\x01n\x05UInt8\x01\x02\x03";
        for end in 0..=body.len() {
            let clickhouse = client_of(THREE, &body[..end]).await;
            let rows = clickhouse.unbounded().query_raw("SELECT n").fetch_whole::<u8>().await;
            assert_eq!(rows.ok(), (end == body.len()).then(|| vec![1, 2, 3]), "{end}");
        }
        let proxy = client_of("", body).await;
        let rows = proxy.unbounded().query_raw("SELECT n").fetch_whole::<u8>().await;
        assert!(rows.unwrap_err().to_string().contains("is this ClickHouse?"));
    }
}
