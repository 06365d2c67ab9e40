//! Refuses answers that were cut off, and successes that do not come from ClickHouse.
//!
//! A proxy that speaks HTTP/1.0 with ClickHouse cannot see that an answer was cut off, and passes
//! the answer on as if it were complete. A list would then be too short, without any error.
//!
//! - A compressed answer, which the client library requests by default, is an LZ4 frame. The
//!   library checks its end mark.
//! - A plain answer must have at least as many rows as `X-ClickHouse-Summary` counts. Without this
//!   header, which a proxy may remove, a plain answer cannot be checked.

use clickhouse::error::Error as ClientError;
use clickhouse::query::{BytesCursor, Query, RowCursor};
use clickhouse::{QuerySummary, RowOwned, RowRead};

/// Reads the rows of a query, and fails if the answer was cut off. Executes a statement, and fails
/// if the success does not come from ClickHouse: a proxy may answer with an empty 200 while
/// ClickHouse is down.
pub trait FetchWhole: Sized {
    /// Returns all rows.
    fn fetch_whole<T: RowOwned + RowRead + Send>(
        self,
    ) -> impl Future<Output = Result<Vec<T>, ClientError>> + Send;

    /// Returns the first row, if there is one.
    fn fetch_whole_optional<T: RowOwned + RowRead + Send>(
        self,
    ) -> impl Future<Output = Result<Option<T>, ClientError>> + Send;

    /// Executes a statement.
    fn execute_whole(self) -> impl Future<Output = Result<(), ClientError>> + Send;

    /// Inserts this number of rows. Fails if ClickHouse counts fewer.
    fn insert_whole(self, rows: usize) -> impl Future<Output = Result<(), ClientError>> + Send;
}

impl FetchWhole for Query {
    async fn fetch_whole<T: RowOwned + RowRead + Send>(self) -> Result<Vec<T>, ClientError> {
        let (mut cursor, mut rows) = (with_complete_summary(self).fetch::<T>()?, Vec::new());
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

    async fn execute_whole(self) -> Result<(), ClientError> {
        written_rows(self).await.map(drop)
    }

    async fn insert_whole(self, rows: usize) -> Result<(), ClientError> {
        // The summary of an asynchronous insert counts no rows, and a server or a login may have
        // asynchronous inserts by default.
        let written = written_rows(self.with_setting("async_insert", "0")).await?;
        if written < rows as u64 {
            return Err(ClientError::BadResponse(format!(
                "ClickHouse counted {written} of {rows} rows: does a proxy cut the request?"
            )));
        }
        Ok(())
    }
}

/// Executes a statement, and returns the number of written rows in ClickHouse's summary.
async fn written_rows(query: Query) -> Result<u64, ClientError> {
    let mut cursor = with_complete_summary(query).fetch_bytes("TSVRaw")?;
    while cursor.next().await?.is_some() {}
    let summary = cursor.summary().ok_or_else(without_summary)?;
    Ok(summary.written_rows().unwrap_or(0))
}

fn without_summary() -> ClientError {
    ClientError::BadResponse(
        "the answer has no X-ClickHouse-Summary: is this ClickHouse?".to_owned(),
    )
}

/// Makes ClickHouse buffer the answer, so that its summary counts all rows. Otherwise the summary
/// of a long answer counts only the rows of its beginning.
pub(super) fn with_complete_summary(query: Query) -> Query {
    query.with_setting("wait_end_of_query", "1")
}

/// Checks the answer of a cursor that has returned its last row.
///
/// A cut answer may pass if the query did not set `wait_end_of_query` and a proxy removed the
/// compression: the summary then counts only the rows of the beginning.
///
/// # Errors
/// The answer was cut off.
pub fn check_rows<T>(cursor: &RowCursor<T>) -> Result<(), ClientError> {
    let (received, decoded) = (cursor.received_bytes(), cursor.decoded_bytes());
    check(received != decoded, cursor.summary(), cursor.returned_rows())
}

/// Checks an answer as [`check_rows`] does, for a list that replaces another list: an empty answer
/// must have ClickHouse's summary, because it would empty the list.
///
/// # Errors
/// The answer was cut off, or is empty and does not come from ClickHouse.
pub fn check_list<T>(cursor: &RowCursor<T>) -> Result<(), ClientError> {
    if cursor.received_bytes() == 0 && cursor.summary().is_none() {
        return Err(without_summary());
    }
    check_rows(cursor)
}

/// Checks an answer in TSVRaw that was read to its end. `text`: the answer.
pub(super) fn check_lines(cursor: &BytesCursor, text: &str) -> Result<(), ClientError> {
    let (received, decoded) = (cursor.received_bytes(), cursor.decoded_bytes());
    let lines = text.matches('\n').count() as u64; // a last line without a newline does not count
    check(received != decoded, cursor.summary(), lines)
}

/// Checks that a plain answer has all rows that its summary counts. `is_compressed`: the answer was
/// an LZ4 frame, which was decoded up to its end mark.
fn check(
    is_compressed: bool,
    summary: Option<&QuerySummary>,
    rows: u64,
) -> Result<(), ClientError> {
    if is_compressed {
        return Ok(());
    }
    // The summary of an old ClickHouse may have no `result_rows`.
    let counted = summary.map(|summary| summary.result_rows().unwrap_or(0));
    match counted {
        Some(counted) if rows >= counted => Ok(()),
        Some(counted) => Err(ClientError::BadResponse(format!(
            "the answer was cut off: it has {rows} rows, X-ClickHouse-Summary counts {counted}"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::ClickHouse;
    use crate::scripted_server::ScriptedServer;
    use milepost_config::Config;

    /// Returns a client of a server that stands for a proxy: the server answers every query with
    /// these headers and this body. Its `Content-Length` fits the body, so an answer that was cut
    /// off looks complete.
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

    const THREE_ROWS: &str = "X-ClickHouse-Summary: {\"result_rows\":\"3\"}\r\n";
    const THREE_ROWS_LZ4: &str =
        "Content-Encoding: lz4\r\nX-ClickHouse-Summary: {\"result_rows\":\"3\"}\r\n";
    /// An LZ4 frame of the text `a\nb\nc\n`, in one uncompressed block.
    const LZ4_FRAME: &[u8] =
        &[4, 34, 77, 24, 0x60, 0x40, 0x82, 6, 0, 0, 0x80, b'a', 10, b'b', 10, b'c', 10, 0, 0, 0, 0];

    #[tokio::test]
    async fn cut_off_answer_is_an_error() {
        let whole = [(THREE_ROWS, &b"a\nb\nc\n"[..]), (THREE_ROWS_LZ4, LZ4_FRAME)];
        for (headers, body) in whole {
            for end in 0..=body.len() {
                let clickhouse = client_of(headers, &body[..end]).await;
                let rows = clickhouse.query_rows::<1>("asking", "SELECT x").await;
                assert_eq!(rows.is_ok(), end == body.len(), "{headers}{end}: {rows:?}");
            }
        }
        let unchecked = client_of("", b"a\nb\n").await;
        assert_eq!(unchecked.query_rows::<1>("asking", "SELECT x").await.unwrap().len(), 2);
    }

    /// A proxy may answer in place of ClickHouse, or cut the request off.
    #[tokio::test]
    async fn success_counts_only_with_clickhouses_own_summary() {
        const TWO_ROWS: &str = "X-ClickHouse-Summary: {\"written_rows\":\"2\"}\r\n";
        for (headers, body, rows, is_done) in [
            (TWO_ROWS, &b""[..], 2, true),
            (TWO_ROWS, b"", 3, false),
            ("", b"", 0, false),
            ("", b"<html>Sorry</html>", 0, false),
        ] {
            let client = client_of(headers, body).await.client();
            let inserted = client.query_raw("INSERT").insert_whole(rows).await;
            assert_eq!(inserted.is_ok(), is_done, "{headers}{rows}: {inserted:?}");
            let executed = client.query_raw("ALTER").execute_whole().await;
            assert_eq!(executed.is_ok(), headers == TWO_ROWS, "{headers}{rows}: {executed:?}");
        }
    }

    /// The summary of an asynchronous insert counts no rows.
    #[tokio::test]
    async fn insert_whose_rows_are_counted_is_never_asynchronous() {
        let server = ScriptedServer::start(Some((200, ""))).await;
        let config = Config::parse(&format!("[clickhouse]\nurl = '{}'", server.url)).unwrap();
        let client = ClickHouse::new(&config.clickhouse).unwrap().client();
        assert!(client.query_raw("INSERT").insert_whole(1).await.is_err());
        let request = server.request();
        assert!(request.contains("async_insert=0"), "{request}");
    }

    #[tokio::test]
    async fn cut_off_typed_rows_are_an_error() {
        // The header: one column n of the type UInt8.
        let body = b"\x01\x01n\x05UInt8\x01\x02\x03";
        for end in 0..=body.len() {
            let clickhouse = client_of(THREE_ROWS, &body[..end]).await;
            let rows = clickhouse.unbounded().query_raw("SELECT n").fetch_whole::<u8>().await;
            assert_eq!(rows.ok(), (end == body.len()).then(|| vec![1, 2, 3]), "{end}");
        }
        let unchecked = client_of("", body).await;
        let rows = unchecked.unbounded().query_raw("SELECT n").fetch_whole::<u8>().await;
        assert_eq!(rows.unwrap(), [1, 2, 3]);
        let client = client_of("", b"").await.client().with_validation(false);
        let mut cursor = client.query_raw("SELECT n").fetch::<u8>().unwrap();
        assert!(cursor.next().await.unwrap().is_none());
        assert!(check_rows(&cursor).is_ok() && check_list(&cursor).is_err());
    }
}
