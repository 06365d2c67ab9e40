//! One direction of a proxied connection: reads bytes, holds them back, and forwards them.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::fault::{Fault, Shared, State};

const READ_BYTES: usize = 64 * 1024;
/// Limits of a direction: the number of bytes held back, and the number of reads of these bytes. A
/// client that sends single bytes reaches the limit of reads first.
const HELD_BYTES_MAX: usize = 256 * 1024;
const HELD_READS_MAX: usize = 4096;

/// Both sides of the connection must be reset.
#[derive(Debug)]
pub(super) struct Cut;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

/// The next step of a pump, besides reading.
enum Step {
    Write,
    Sleep(Instant),
    Wait,
    Close,
}

pub(super) struct Pump<'a> {
    direction: Direction,
    state: watch::Receiver<State>,
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    buffer: Vec<u8>,
    /// Bytes that are read and not yet forwarded: one entry for each read, with the time of the
    /// read.
    held: VecDeque<(BytesMut, Instant)>,
    /// The end of stream, with its time. It is forwarded after all held bytes. `true`: a regular
    /// end, `false`: a reset.
    end: Option<(Instant, bool)>,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        direction: Direction,
        shared: &Shared,
        reader: ReadHalf<'a>,
        writer: WriteHalf<'a>,
    ) -> Self {
        let state = shared.state.subscribe();
        Self {
            direction,
            state,
            reader,
            writer,
            buffer: vec![0; READ_BYTES],
            held: VecDeque::new(),
            end: None,
        }
    }

    /// Forwards bytes until the end of stream is forwarded, or until a side resets the connection.
    pub(super) async fn run(mut self) -> Result<(), Cut> {
        loop {
            let (mut writes, mut wake) = (false, None);
            match self.next_step()? {
                Step::Close => return self.writer.shutdown().await.map_err(|_| Cut),
                Step::Write => writes = true,
                Step::Sleep(until) => wake = Some(until),
                Step::Wait => {}
            }
            let bytes_max = self.readable_bytes_max().min(READ_BYTES);
            let front = self.held.front().map_or(&[][..], |(bytes, _)| bytes);
            select! {
                biased;
                _ = self.state.changed() => {}
                written = self.writer.write(front), if writes => self.record_write(written)?,
                read = self.reader.read(&mut self.buffer[..bytes_max]), if bytes_max > 0 => {
                    self.record_read(read);
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// Returns how many bytes may be read now.
    fn readable_bytes_max(&self) -> usize {
        if self.end.is_some() || self.held.len() >= HELD_READS_MAX {
            return 0;
        }
        HELD_BYTES_MAX - self.held.iter().map(|(bytes, _)| bytes.len()).sum::<usize>()
    }

    /// Returns the next step, as the fault requires. Fails if the peer has reset the connection and
    /// all held bytes are forwarded.
    fn next_step(&mut self) -> Result<Step, Cut> {
        let arrived = self.held.front().map(|(_, arrived)| *arrived).or(self.end.map(|(at, _)| at));
        let Some(arrived) = arrived else { return Ok(Step::Wait) };
        let fault = self.state.borrow().fault;
        match fault {
            Fault::HangBoth => return Ok(Step::Wait),
            Fault::HangDown if self.direction == Direction::Down => return Ok(Step::Wait),
            Fault::HalfOpen if self.direction == Direction::Up => {
                self.held.clear();
                return Ok(Step::Wait);
            }
            Fault::Delay(delay) if arrived + delay > Instant::now() => {
                return Ok(Step::Sleep(arrived + delay));
            }
            Fault::None
            | Fault::Refuse
            | Fault::Cut
            | Fault::HalfOpen
            | Fault::HangDown
            | Fault::Delay(_) => {}
        }
        match self.end {
            _ if !self.held.is_empty() => Ok(Step::Write),
            Some((_, false)) => Err(Cut),
            Some((_, true)) | None => Ok(Step::Close),
        }
    }

    fn record_write(&mut self, written: io::Result<usize>) -> Result<(), Cut> {
        let len = written.map_err(|_| Cut)?;
        if let Some((bytes, _)) = self.held.front_mut() {
            bytes.advance(len);
            if bytes.is_empty() {
                self.held.pop_front();
            }
        }
        Ok(())
    }

    fn record_read(&mut self, read: io::Result<usize>) {
        let arrived = Instant::now();
        match read {
            Ok(0) => self.end = Some((arrived, true)),
            Ok(len) => self.held.push_back((self.buffer[..len].into(), arrived)),
            Err(_) => self.end = Some((arrived, false)),
        }
    }
}
