//! Reads a file through a buffer of its own, bounds the bytes of one point, tag or text, and counts
//! the lines.

use std::io::{self, BufRead, Read};
use std::ops::Range;

use memchr::memchr_iter;

const BUFFER_BYTES: usize = 64 * 1024;

/// A reader that fails once `remaining` bytes were read; the parser sets `remaining` again before
/// each point, tag or text. `io::Take` would instead report the end of the file, and the text would
/// be cut without an error.
pub(super) struct Bounded<R> {
    input: R,
    pub(super) remaining: usize,
    buffer: Box<[u8]>,
    /// Place of the unread bytes in `buffer`.
    unread: Range<usize>,
    /// Number of bytes at the beginning of `buffer` whose line ends are counted.
    counted: usize,
    /// Line of the first byte that is not counted.
    line: u64,
}

impl<R> Bounded<R> {
    pub(super) fn new(input: R, remaining: usize) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { input, remaining, buffer, unread: 0..0, counted: 0, line: 1 }
    }

    /// Returns the line of the next byte. Only this function counts line ends, because a parser
    /// needs the line of few of its many reads.
    pub(super) fn line(&mut self) -> u64 {
        let uncounted = &self.buffer[self.counted..self.unread.start];
        self.line += memchr_iter(b'\n', uncounted).count() as u64;
        self.counted = self.unread.start;
        self.line
    }
}

impl<R: Read> Bounded<R> {
    /// Fills the buffer again. The caller must have read all of its bytes.
    #[cold]
    fn refill(&mut self) -> io::Result<()> {
        // Count the line ends before the buffer is overwritten.
        self.line();
        (self.unread, self.counted) = (0..0, 0);
        self.unread.end = self.input.read(&mut self.buffer)?;
        Ok(())
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(to)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: Read> BufRead for Bounded<R> {
    #[inline]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.remaining == 0 {
            return Err(io::Error::other("a point, tag or text is longer than 1 MiB"));
        }
        if self.unread.is_empty() {
            self.refill()?;
        }
        let unread = &self.buffer[self.unread.clone()];
        Ok(&unread[..unread.len().min(self.remaining)])
    }

    #[inline]
    fn consume(&mut self, bytes: usize) {
        self.remaining -= bytes;
        self.unread.start += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_the_next_byte_is_correct_after_refills() {
        let text = "a line\n".repeat(3 * BUFFER_BYTES / 7) + "end";
        let mut reader = Bounded::new(text.as_bytes(), usize::MAX);
        let mut read = 0;
        while !reader.fill_buf().unwrap().is_empty() {
            let bytes = reader.fill_buf().unwrap().len().min(1_000);
            reader.consume(bytes);
            read += bytes;
            // Ask for the line at only a few positions, as a parser does.
            if read.is_multiple_of(7) || read == text.len() {
                let before = &text.as_bytes()[..read];
                assert_eq!(reader.line(), 1 + memchr_iter(b'\n', before).count() as u64);
            }
        }
        assert_eq!(read, text.len());
        reader.remaining = 0;
        assert!(reader.fill_buf().is_err());
    }
}
