//! Detects whether the last line of a file has a line end. A file that was cut off may have none.

use std::io::{self, BufRead, Read};

/// A reader that keeps the last byte that was read from it.
pub(super) struct LastByteReader<R> {
    inner: R,
    last: Option<u8>,
}

impl<R: BufRead> LastByteReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, last: None }
    }

    /// Returns whether the last byte read is part of a line: not a line end, and not the NUL or
    /// Ctrl-Z at the end of some files.
    pub(super) fn is_within_line(&self) -> bool {
        self.last.is_some_and(|byte| !matches!(byte, b'\n' | b'\r' | 0 | 0x1a))
    }

    /// Returns whether the last byte read is `byte`.
    pub(super) fn ends_with(&self, byte: u8) -> bool {
        self.last == Some(byte)
    }
}

impl<R: BufRead> Read for LastByteReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(to)?;
        self.last = to[..bytes].last().copied().or(self.last);
        Ok(bytes)
    }
}

impl<R: BufRead> BufRead for LastByteReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        // The buffer still holds these bytes, so this reads nothing.
        if let (Some(last_index), Ok(buffer)) = (bytes.checked_sub(1), self.inner.fill_buf()) {
            self.last = buffer.get(last_index).copied().or(self.last);
        }
        self.inner.consume(bytes);
    }
}
