//! One direction of a connection: reads, holds back, looks for INSERTs, passes on.

use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use lab_stack::lock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::fault::{Fault, Shared, State};
use super::held::{End, Held};
use super::http::{Exchange, Head, POST, SUCCESS};

const READ_BYTES: usize = 64 * 1024;
/// From the last byte to the reset, which would take bytes the server has not read yet with it.
const LET_IT_ARRIVE: Duration = Duration::from_millis(20);
/// How many durations of INSERTs are kept.
const DURATIONS_KEPT: usize = 1 << 20;

/// How a connection goes.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Both sides have closed, and know it from each other.
    Ended,
    Cut,
    AnswerSwallowed,
    Answer500,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Whether bytes may pass now.
#[derive(Debug, Clone, Copy)]
enum Gate {
    Open,
    OpensAt(Instant),
    Shut,
    Swallows,
}

/// What a pump does next, besides reading.
#[derive(Debug, Clone, Copy)]
enum Step {
    Write(usize),
    Sleep(Instant),
    Wait,
    Close,
}

/// One direction of a connection.
pub(crate) struct Pump<'a> {
    direction: Direction,
    shared: &'a Shared,
    state: watch::Receiver<State>,
    exchange: &'a Mutex<Exchange>,
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    buffer: Vec<u8>,
    held: Held,
    /// What may still go up of a request that will be cut.
    left_to_cut: Option<u64>,
}

impl<'a> Pump<'a> {
    pub(crate) fn new(
        direction: Direction,
        shared: &'a Shared,
        exchange: &'a Mutex<Exchange>,
        reader: ReadHalf<'a>,
        writer: WriteHalf<'a>,
    ) -> Self {
        Self {
            direction,
            shared,
            state: shared.state.subscribe(),
            exchange,
            reader,
            writer,
            buffer: vec![0; READ_BYTES],
            held: Held::default(),
            left_to_cut: None,
        }
    }

    pub(crate) async fn run(mut self) -> Result<(), Verdict> {
        loop {
            let step = self.next_step()?;
            if self.left_to_cut == Some(0) {
                self.cut_mid_body().await?;
                continue;
            }
            let (len, wake) = match step {
                Step::Close => return self.writer.shutdown().await.map_err(|_| Verdict::Cut),
                Step::Write(len) => (len, None),
                Step::Sleep(until) => (0, Some(until)),
                Step::Wait => (0, None),
            };
            let room = self.held.room().min(READ_BYTES);
            select! {
                biased;
                _ = self.state.changed() => {}
                written = self.writer.write(self.held.front(len)), if len > 0 => self.wrote(written)?,
                read = self.reader.read(&mut self.buffer[..room]), if room > 0 => self.took_in(read),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    fn fault(&self) -> Fault {
        self.shared.state.borrow().fault
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        lock(self.exchange)
    }

    fn next_step(&mut self) -> Result<Step, Verdict> {
        let Some(arrived) = self.held.arrived() else { return Ok(Step::Wait) };
        match self.gate(arrived) {
            Gate::Open => self.pass(),
            Gate::OpensAt(at) => Ok(Step::Sleep(at)),
            Gate::Shut => Ok(Step::Wait),
            Gate::Swallows => {
                self.held.reads.clear();
                Ok(Step::Wait)
            }
        }
    }

    fn gate(&self, arrived: Instant) -> Gate {
        match self.fault() {
            Fault::HangBoth => Gate::Shut,
            Fault::HangDown if self.direction == Direction::Down => Gate::Shut,
            Fault::HalfOpen if self.direction == Direction::Up => Gate::Swallows,
            Fault::Delay(delay) => match arrived.checked_add(delay) {
                Some(at) if at > Instant::now() => Gate::OpensAt(at),
                Some(_) => Gate::Open,
                None => Gate::Shut,
            },
            Fault::None
            | Fault::Refuse
            | Fault::Cut
            | Fault::HalfOpen
            | Fault::HangDown
            | Fault::SwallowAnswer { .. }
            | Fault::Status500 { .. }
            | Fault::ResetMidBody { .. } => Gate::Open,
        }
    }

    fn pass(&mut self) -> Result<Step, Verdict> {
        if self.held.reads.is_empty() {
            return if self.held.end.is_some_and(|end| end.regular) {
                Ok(Step::Close)
            } else {
                Err(Verdict::Cut)
            };
        }
        let clear = match self.direction {
            Direction::Up => self.look_up()?,
            Direction::Down => self.look_down()?,
        };
        if !clear {
            return if self.held.join_front() { self.next_step() } else { Ok(Step::Wait) };
        }
        let left_to_cut = self.left_to_cut.and_then(|left| usize::try_from(left).ok()).unwrap_or(usize::MAX);
        Ok(Step::Write(self.held.front(left_to_cut).len()))
    }

    /// Finds the requests in what goes up; whether the front read may go.
    fn look_up(&mut self) -> Result<bool, Verdict> {
        let before = *self.exchange();
        let front = self.held.front(usize::MAX);
        let begins = match before {
            Exchange::Fresh => front.first().is_some_and(u8::is_ascii_uppercase),
            Exchange::Idle => true,
            Exchange::Other => front.starts_with(POST),
            Exchange::Foreign | Exchange::Insert { .. } => false,
        };
        if !begins {
            if before == Exchange::Fresh {
                *self.exchange() = Exchange::Foreign;
            }
            return Ok(true);
        }
        match Head::of(front, self.held.more_may_come()) {
            Head::Unclear => return Ok(false),
            Head::Other => self.request_begins(Exchange::Other),
            Head::Insert => self.insert_begins()?,
        }
        Ok(true)
    }

    fn request_begins(&mut self, exchange: Exchange) {
        *self.exchange() = exchange;
        self.left_to_cut = None;
    }

    fn insert_begins(&mut self) -> Result<(), Verdict> {
        self.request_begins(Exchange::Insert { since: self.held.arrived().unwrap_or_else(Instant::now) });
        let fault = self.fault();
        if matches!(fault, Fault::Status500 { .. }) && self.shared.take(fault) {
            return Err(Verdict::Answer500);
        }
        if let Fault::ResetMidBody { after_bytes, .. } = fault {
            self.left_to_cut = Some(after_bytes);
        }
        Ok(())
    }

    /// Finds the beginnings of answers in what comes down; whether the front read may go.
    fn look_down(&mut self) -> Result<bool, Verdict> {
        let before = *self.exchange();
        let begins = matches!(before, Exchange::Insert { .. } | Exchange::Other);
        let front = self.held.front(usize::MAX);
        if begins && front.len() < SUCCESS.len() && SUCCESS.starts_with(front) && self.held.more_may_come() {
            return Ok(false);
        }
        let succeeded = front.starts_with(SUCCESS);
        let committed = match before {
            Exchange::Insert { since } if succeeded => Some(since),
            Exchange::Insert { .. }
            | Exchange::Other
            | Exchange::Fresh
            | Exchange::Foreign
            | Exchange::Idle => None,
        };
        if begins {
            *self.exchange() = Exchange::Idle;
        }
        let Some(since) = committed else { return Ok(true) };
        let mut took = self.shared.inserts_took();
        if took.len() < DURATIONS_KEPT {
            took.push(since.elapsed());
        }
        drop(took);
        let fault = self.fault();
        if matches!(fault, Fault::SwallowAnswer { .. }) && self.shared.take(fault) {
            return Err(Verdict::AnswerSwallowed);
        }
        Ok(true)
    }

    /// Cuts, unless the fault has ended since the request began.
    async fn cut_mid_body(&mut self) -> Result<(), Verdict> {
        self.left_to_cut = None;
        let fault = self.fault();
        if matches!(fault, Fault::ResetMidBody { .. }) && self.shared.take(fault) {
            sleep(LET_IT_ARRIVE).await;
            return Err(Verdict::Cut);
        }
        Ok(())
    }

    fn wrote(&mut self, written: io::Result<usize>) -> Result<(), Verdict> {
        let len = written.map_err(|_| Verdict::Cut)?;
        self.held.advance(len);
        self.left_to_cut = self.left_to_cut.map(|left| left.saturating_sub(len as u64));
        Ok(())
    }

    fn took_in(&mut self, read: io::Result<usize>) {
        let arrived = Instant::now();
        match read {
            Ok(0) => self.held.end = Some(End { arrived, regular: true }),
            Ok(len) => self.held.push(&self.buffer[..len], arrived),
            Err(_) => self.held.end = Some(End { arrived, regular: false }),
        }
    }
}
