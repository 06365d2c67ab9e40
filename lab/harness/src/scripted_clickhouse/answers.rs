//! Answers that the script gives instead of the engine: ClickHouse's errors, and the pages of
//! proxies.

/// Tag of an exception within a body. A real server draws a new tag for each answer.
const TAG: &str = "qnzfjkwcahvbyrtl";
/// Value of the header X-ClickHouse-Summary, with 0 written rows.
const SUMMARY: &str =
    "{\"read_rows\":\"0\",\"read_bytes\":\"0\",\"written_rows\":\"0\",\"written_bytes\":\"0\"}";
/// Code of the ClickHouse error that a proxy quotes in its page.
const UNKNOWN_TABLE: u32 = 60;
/// Code of the exceptions within a body.
const OUT_OF_MEMORY: u32 = 241;
/// Code with which the engine answers when the target of a view refuses rows that the table has
/// accepted.
const VIOLATED_CONSTRAINT: u32 = 469;

/// Code, HTTP status, name and text of each error, as ClickHouse 26.9 answers it.
const ERRORS: [(u32, &str, &str, &str); 13] = [
    (UNKNOWN_TABLE, "404 Not Found", "UNKNOWN_TABLE", "Table fleet.positions does not exist"),
    (81, "404 Not Found", "UNKNOWN_DATABASE", "Database fleet does not exist"),
    (
        159,
        "408 Request Timeout",
        "TIMEOUT_EXCEEDED",
        "Timeout exceeded: elapsed 60.1 seconds, maximum: 60",
    ),
    (
        164,
        "500 Internal Server Error",
        "READONLY",
        "default: Cannot execute query in readonly mode",
    ),
    (
        OUT_OF_MEMORY,
        "500 Internal Server Error",
        "MEMORY_LIMIT_EXCEEDED",
        "(total) memory limit exceeded: would use 7.21 GiB, maximum: 7.20 GiB",
    ),
    (
        242,
        "500 Internal Server Error",
        "TABLE_IS_READ_ONLY",
        "Table is in readonly mode (replica path: /r1)",
    ),
    (
        252,
        "500 Internal Server Error",
        "TOO_MANY_PARTS",
        "Too many parts (3001 with average size of 2.21 KiB) in table 'fleet.positions'. Merges \
         are processing significantly slower than inserts",
    ),
    (
        285,
        "500 Internal Server Error",
        "TOO_FEW_LIVE_REPLICAS",
        "Number of alive replicas (1) is less than requested quorum (2/2)",
    ),
    (
        319,
        "500 Internal Server Error",
        "UNKNOWN_STATUS_OF_INSERT",
        "Unknown quorum status. The data was inserted in the local replica but we could not \
         verify quorum",
    ),
    (
        344,
        "500 Internal Server Error",
        "SUPPORT_IS_DISABLED",
        "Deduplication in dependent materialized view cannot work together with async inserts. \
         Please disable either `deduplicate_blocks_in_dependent_materialized_views` or \
         `async_insert` setting",
    ),
    (
        VIOLATED_CONSTRAINT,
        "500 Internal Server Error",
        "VIOLATED_CONSTRAINT",
        "Constraint `above` for table fleet.last_positions_state is violated at row 1. \
         Expression: (n > 100): while pushing to view fleet.last_positions_mv",
    ),
    (999, "500 Internal Server Error", "KEEPER_EXCEPTION", "Coordination error: Connection loss"),
    (
        516,
        "403 Forbidden",
        "AUTHENTICATION_FAILED",
        "default: Authentication failed: password is incorrect, or there is no user with such name",
    ),
];

/// Returns whether [`ERRORS`] lists an error code.
pub(super) fn is_known(code: u32) -> bool {
    ERRORS.iter().any(|(listed, ..)| *listed == code)
}

/// Returns the text of an error, as a server writes it into a body.
fn text(code: u32) -> String {
    let (_, _, name, message) = entry(code);
    format!(
        "Code: {code}. DB::Exception: {message}. ({name}) (version 26.9.2.1 (official build))\n"
    )
}

fn entry(code: u32) -> &'static (u32, &'static str, &'static str, &'static str) {
    ERRORS.iter().find(|(listed, ..)| *listed == code).expect("ERRORS lists the code")
}

/// Returns ClickHouse's answer for an error.
pub(super) fn error(code: u32) -> Vec<u8> {
    let (_, status, ..) = entry(code);
    whole(status, &format!("X-ClickHouse-Exception-Code: {code}\r\n"), &text(code))
}

/// Returns ClickHouse's answer when a view behind the table failed.
pub(super) fn view_failed() -> Vec<u8> {
    error(VIOLATED_CONSTRAINT)
}

/// Returns 200 with the summary, and an exception in the body as servers write it since 25.11, in
/// chunks of a few bytes.
pub(super) fn exception_in_chunks() -> Vec<Vec<u8>> {
    let head = format!("{}Transfer-Encoding: chunked\r\n\r\n", good_head());
    let exception = tagged_exception();
    let chunk =
        |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    let chunks = exception.as_bytes().chunks(7).map(chunk);
    std::iter::once(head.into_bytes()).chain(chunks).chain([b"0\r\n\r\n".to_vec()]).collect()
}

/// Returns 200 with the summary, and an exception that ends in the middle of `__exception__`. The
/// body ends with the connection.
pub(super) fn exception_cut_in_its_marker() -> Vec<u8> {
    cut_exception("\r\n__excep".len())
}

/// Returns 200 with the summary, and an exception that ends in the middle of its text. The body
/// ends with the connection.
pub(super) fn exception_cut_in_its_text() -> Vec<u8> {
    let exception = tagged_exception();
    cut_exception(exception.find("DB::Exc").expect("every exception contains it"))
}

fn cut_exception(bytes: usize) -> Vec<u8> {
    format!("{}Connection: close\r\n\r\n{}", good_head(), &tagged_exception()[..bytes]).into_bytes()
}

/// Returns 200 with the summary, and an exception in the body as servers before 25.11 write it,
/// without the last newline.
pub(super) fn exception_in_the_old_format() -> Vec<u8> {
    let summary = format!("X-ClickHouse-Summary: {SUMMARY}\r\n");
    whole("200 OK", &summary, text(OUT_OF_MEMORY).trim_end())
}

/// Returns the head of an answer that reports success, up to its framing.
fn good_head() -> String {
    format!(
        "HTTP/1.1 200 OK\r\nX-ClickHouse-Exception-Tag: {TAG}\r\n\
         X-ClickHouse-Summary: {SUMMARY}\r\n"
    )
}

/// Returns an exception within a body, as servers write it since 25.11.
fn tagged_exception() -> String {
    let text = text(OUT_OF_MEMORY);
    format!("\r\n__exception__\r\n{TAG}\r\n{text}{} {TAG}\r\n__exception__\r\n", text.len())
}

/// Returns 200 with a summary of 0 written rows: the answer of a replica that already knows the
/// token.
pub(super) fn known_already() -> Vec<u8> {
    whole("200 OK", &format!("X-ClickHouse-Summary: {SUMMARY}\r\n"), "")
}

/// Returns 200 with an empty body, neither an exception nor a summary.
pub(super) fn empty() -> Vec<u8> {
    whole("200 OK", "", "")
}

/// Returns a proxy's HTML page.
pub(super) fn page(status: u16) -> Vec<u8> {
    html(status, "")
}

/// Returns a proxy's error page that quotes a ClickHouse error of its upstream.
pub(super) fn page_with_a_quotation(status: u16) -> Vec<u8> {
    html(
        status,
        &format!("<p>The upstream's last words: {}</p>\r\n", text(UNKNOWN_TABLE).trim_end()),
    )
}

fn html(status: u16, paragraph: &str) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        413 => "Request Entity Too Large",
        502 => "Bad Gateway",
        503 => "Service Temporarily Unavailable",
        _ => "Internal Server Error",
    };
    let status = format!("{status} {reason}");
    let body = format!(
        "<html>\r\n<head><title>{status}</title></head>\r\n<body>\r\n\
         <center><h1>{status}</h1></center>\r\n{paragraph}<hr><center>nginx/1.22.1</center>\r\n\
         </body>\r\n</html>\r\n"
    );
    whole(&status, "Content-Type: text/html\r\n", &body)
}

/// Returns 307 to the same path and query on another port of this machine.
pub(super) fn redirect(port: u16, target: &str) -> Vec<u8> {
    let location = format!("Location: http://127.0.0.1:{port}{target}\r\n");
    whole("307 Temporary Redirect", &location, "")
}

/// Returns the head of an error whose body has this length; `None`: the body does not end.
pub(super) fn head_of_a_long_error(body_bytes: Option<u64>) -> Vec<u8> {
    let framing = match body_bytes {
        Some(bytes) => format!("Content-Length: {bytes}"),
        None => "Transfer-Encoding: chunked".to_owned(),
    };
    format!("HTTP/1.1 500 Internal Server Error\r\n{framing}\r\n\r\n").into_bytes()
}

/// Returns an answer with its framing. `headers`: further headers, each with its line end.
fn whole(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}
