//! HTTP as far as the faults on INSERTs need it.

use tokio::time::Instant;

/// A request line that is longer is judged by its beginning.
pub(crate) const REQUEST_LINE_BYTES: usize = 64 * 1024;
pub(crate) const POST: &[u8] = b"POST ";
/// How an answer begins that says the insert is committed.
pub(crate) const SUCCESS: &[u8] = b"HTTP/1.1 2";

/// Where an HTTP connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// Nothing went up yet.
    Fresh,
    /// Not HTTP: no method in capitals at its beginning.
    Foreign,
    /// What goes up next is a request.
    Idle,
    /// An INSERT goes up, or its answer has not begun.
    Insert { since: Instant },
    /// The same of another request, or the rest of one that was answered early.
    Other,
}

/// What the first bytes of a request say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Insert,
    Other,
    /// More bytes are needed.
    Unclear,
}

impl Head {
    pub(crate) fn of(bytes: &[u8], more_may_come: bool) -> Self {
        if !bytes.starts_with(POST) {
            return if more_may_come && POST.starts_with(bytes) { Self::Unclear } else { Self::Other };
        }
        let end = bytes.iter().position(|&byte| byte == b'\n');
        if end.is_none() && more_may_come && bytes.len() < REQUEST_LINE_BYTES {
            return Self::Unclear;
        }
        let line = bytes[..end.unwrap_or(bytes.len())].to_ascii_lowercase();
        let insert = b"query=insert";
        if line.windows(insert.len()).any(|part| part == insert) { Self::Insert } else { Self::Other }
    }
}
