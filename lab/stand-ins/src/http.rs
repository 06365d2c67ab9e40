//! HTTP/1.1 as far as the sink's and the floor's endpoints need it: one request after the other on a connection.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

const HEAD_BYTES_MAX: u64 = 64 * 1024;
/// The rows of one insert; milepost's largest batch is 8 MiB.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// A request whose body is in the caller's buffer.
#[derive(Debug)]
pub struct Request {
    /// `/`, or what else comes before the `?`.
    pub path: String,
    /// What comes after it, decoded.
    pub parameters: Vec<(String, String)>,
    /// When its first bytes were there.
    pub began: Instant,
}

impl Request {
    /// The parameter of that name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the next request, its body into `body`; `None`: the client has closed.
///
/// # Errors
/// The connection broke, or this is not HTTP.
pub fn read_request(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<Option<Request>> {
    body.clear();
    if reader.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let began = Instant::now();
    let mut line = String::new();
    reader.by_ref().take(HEAD_BYTES_MAX).read_line(&mut line)?;
    let target = line.split(' ').nth(1).ok_or_else(|| bad("no target"))?.to_owned();
    read_head(reader)?.read_body(reader, body)?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let parameters = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect();
    Ok(Some(Request { path: path.to_owned(), parameters, began }))
}

fn read_chunks(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        reader.by_ref().take(HEAD_BYTES_MAX).read_line(&mut line)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16).map_err(|_| bad("a chunk's length"))?;
        append(reader, length, body)?;
        line.clear();
        reader.by_ref().take(HEAD_BYTES_MAX).read_line(&mut line)?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn append(reader: &mut BufReader<TcpStream>, length: u64, body: &mut Vec<u8>) -> io::Result<()> {
    if body.len() as u64 + length > BODY_BYTES_MAX {
        return Err(bad("the body is too long"));
    }
    let taken = reader.by_ref().take(length).read_to_end(body)?;
    if taken as u64 == length { Ok(()) } else { Err(bad("the body is cut")) }
}

/// Reads the answer to a request, and throws its body away.
///
/// # Errors
/// The connection broke, or the answer is not 200: then the error holds the body.
pub fn read_answer(reader: &mut BufReader<TcpStream>) -> io::Result<()> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let good = line.split(' ').nth(1) == Some("200");
    let head = read_head(reader)?;
    let mut body = Vec::new();
    head.read_body(reader, &mut body)?;
    if good { Ok(()) } else { Err(bad(&format!("{}: {}", line.trim_end(), String::from_utf8_lossy(&body)))) }
}

/// What the header lines say about the body.
struct Head {
    length: u64,
    chunked: bool,
}

impl Head {
    fn read_body(&self, reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
        if self.chunked { read_chunks(reader, body) } else { append(reader, self.length, body) }
    }
}

/// The header lines, to the empty one.
fn read_head(reader: &mut BufReader<TcpStream>) -> io::Result<Head> {
    let mut lines = reader.by_ref().take(HEAD_BYTES_MAX);
    let mut head = Head { length: 0, chunked: false };
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Err(bad("the head is cut or too long"));
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { return Ok(head) };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => head.length = value.trim().parse().map_err(|_| bad("content-length"))?,
            "transfer-encoding" => head.chunked = value.trim().eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
}

/// Answers, and keeps the connection.
///
/// # Errors
/// The client is gone.
pub fn respond(mut stream: &TcpStream, status: &str, body: &[u8]) -> io::Result<()> {
    let mut answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    stream.write_all(&answer)
}

/// Listens on the loopback; 0 is a free port. Every connection gets a thread, for `serve`.
///
/// # Errors
/// The port is taken.
pub fn listen(port: u16, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let port = listener.local_addr()?.port();
    std::thread::Builder::new().name("listener".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    })?;
    Ok(port)
}

/// Undoes `%41` and `+`.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (byte, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// For a query parameter.
#[must_use]
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_back_as_they_were() {
        let sql = "INSERT INTO fleet.positions (a, b) FORMAT RowBinary + 100 %";
        assert_eq!(decoded(&encoded(sql)), sql);
        assert_eq!(decoded("INSERT+INTO%20t"), "INSERT INTO t");
        assert_eq!(decoded("100%"), "100%");
    }
}
