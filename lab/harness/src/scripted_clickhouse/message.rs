//! Reads and writes HTTP/1.1 messages for the proxy: a head, and a body in pieces.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;

/// Maximum bytes of a line of a head.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Maximum bytes of a body. No test sends a longer body.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Maximum bytes of one read of a body.
const PIECE_BYTES: u64 = 64 * 1024;
/// Headers that describe the framing of a message, not its content.
const FRAMING: [&str; 3] = ["connection", "content-length", "transfer-encoding"];

/// The first line of a message, and its headers.
#[derive(Debug)]
pub(super) struct Head {
    /// `POST /?query=… HTTP/1.1`, or `HTTP/1.1 200 OK`.
    pub(super) first_line: String,
    headers: Vec<(String, String)>,
}

impl Head {
    /// Reads a head. `None`: the peer has closed.
    pub(super) async fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let Some(first_line) = read_line(reader).await? else { return Ok(None) };
        let mut head = Self { first_line, headers: Vec::new() };
        loop {
            let line = read_line(reader).await?.ok_or(ErrorKind::UnexpectedEof)?;
            let Some((name, value)) = line.split_once(':') else { return Ok(Some(head)) };
            head.headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// Returns the value of the first header with this name, ignoring case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Removes all headers with this name, ignoring case.
    pub(super) fn remove(&mut self, name: &str) {
        self.headers.retain(|(header, _)| !header.eq_ignore_ascii_case(name));
    }

    /// Returns the path and query of a request.
    pub(super) fn target(&self) -> &str {
        self.first_line.split(' ').nth(1).unwrap_or("/")
    }

    /// Returns a parameter of the URL, decoded.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let query = self.target().split_once('?')?.1;
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(parameter, _)| parameter == name).map(|(_, value)| value.into_owned())
    }

    /// Returns `true` for an INSERT: its statement is in the URL, its rows are in the body.
    pub(super) fn is_insert(&self) -> bool {
        let statement = self.parameter("query").unwrap_or_default();
        let first_word = statement.split_whitespace().next().unwrap_or_default();
        self.first_line.starts_with("POST ") && first_word.eq_ignore_ascii_case("insert")
    }

    /// Encodes the head for a body of `body_bytes` bytes. `connection`: the value of the
    /// `Connection` header, `close` or `keep-alive`.
    pub(super) fn to_bytes(&self, body_bytes: usize, connection: &str) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.first_line);
        let is_framing = |name: &str| FRAMING.contains(&name.to_lowercase().as_str());
        for (name, value) in self.headers.iter().filter(|(name, _)| !is_framing(name)) {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {body_bytes}\r\nConnection: {connection}\r\n\r\n");
        text.into_bytes()
    }
}

/// State of a body that is read in pieces.
#[derive(Debug)]
pub(super) enum Body {
    /// Bytes of the body still to read.
    Bytes(u64),
    /// The size line of the next chunk is still to read.
    Chunks,
    /// Bytes of the current chunk still to read.
    Chunk(u64),
    /// The body ends with the connection.
    UntilClose,
}

impl Body {
    /// Returns the body of a request; empty without framing headers.
    pub(super) fn request(head: &Head) -> Self {
        Self::framed(head).unwrap_or(Self::Bytes(0))
    }

    /// Returns the body of an answer. Without framing headers, the body ends with the connection.
    pub(super) fn answer(head: &Head) -> Self {
        Self::framed(head).unwrap_or(Self::UntilClose)
    }

    fn framed(head: &Head) -> Option<Self> {
        if head
            .header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            return Some(Self::Chunks);
        }
        head.header("content-length")?.parse().ok().map(Self::Bytes)
    }

    /// Appends the next piece of the body to `into`. Returns `false` if the body is complete.
    pub(super) async fn pull(
        &mut self,
        reader: &mut BufReader<TcpStream>,
        into: &mut Vec<u8>,
    ) -> io::Result<bool> {
        if into.len() > BODY_BYTES_MAX {
            return Err(invalid("the body is too long"));
        }
        match self {
            Self::Bytes(0) => Ok(false),
            Self::Bytes(remaining) => {
                *remaining -= read_some(reader, *remaining, into).await?;
                Ok(true)
            }
            Self::Chunks => {
                let size = read_line(reader).await?.ok_or(ErrorKind::UnexpectedEof)?;
                let size = u64::from_str_radix(size.trim(), 16)
                    .map_err(|_| invalid("a chunk's size is not hexadecimal"))?;
                if size > 0 {
                    *self = Self::Chunk(size);
                    return Ok(true);
                }
                read_line(reader).await?; // the empty line after the last chunk
                *self = Self::Bytes(0);
                Ok(false)
            }
            Self::Chunk(remaining) => {
                *remaining -= read_some(reader, *remaining, into).await?;
                if *remaining == 0 {
                    read_line(reader).await?; // the line end after the chunk
                    *self = Self::Chunks;
                }
                Ok(true)
            }
            Self::UntilClose => Ok(reader.take(PIECE_BYTES).read_to_end(into).await? > 0),
        }
    }

    /// Appends the rest of the body to `into`.
    pub(super) async fn pull_all(
        mut self,
        reader: &mut BufReader<TcpStream>,
        into: &mut Vec<u8>,
    ) -> io::Result<()> {
        while self.pull(reader, into).await? {}
        Ok(())
    }
}

/// Waits for bytes, and appends the available ones to `into`, at most `bytes_max`. Returns how many
/// were appended.
async fn read_some(
    reader: &mut BufReader<TcpStream>,
    bytes_max: u64,
    into: &mut Vec<u8>,
) -> io::Result<u64> {
    let read = reader.take(bytes_max.min(PIECE_BYTES)).read_buf(into).await?;
    if read == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(read as u64) }
}

/// Reads a line without its end. `None`: the peer has closed.
async fn read_line(reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut line = String::new();
    if reader.take(LINE_BYTES_MAX).read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(Some(line))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}
