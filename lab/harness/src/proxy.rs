//! A TCP proxy that fails on demand, to stand between a client and a real server. For the fault harness.
//!
//! Guarantee: bytes go on unchanged, complete and in order, or their connection is cut. The one exception is
//! [`Fault::HalfOpen`], whose connections are cut when it ends. At most [`HELD_BYTES`] a direction are held
//! here; then the proxy stops reading.
//!
//! HTTP is looked at only as far as the faults on INSERT requests need it. A request begins with the first bytes
//! that go up on a connection, or the first after an answer began to come down; clients that pipeline, or that
//! wait for `100 Continue`, are not understood. An INSERT is a POST with `query=INSERT…` in its request line.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::select;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// What a direction of a connection holds back at most.
pub const HELD_BYTES: usize = 256 * 1024;
/// The same in reads, for a client that sends single bytes.
const HELD_READS: usize = 4096;
const READ_BYTES: usize = 64 * 1024;
/// A request line that is longer is judged by its beginning.
const REQUEST_LINE_BYTES: usize = 64 * 1024;
/// From the last byte to the reset, which would take bytes the server has not read yet with it.
const LET_IT_ARRIVE: Duration = Duration::from_millis(20);
/// How many durations of INSERTs are kept.
const DURATIONS_KEPT: usize = 1 << 20;
const READ_OFF_WITHIN: Duration = Duration::from_secs(5);
const TRICKLES_PER_SECOND: u32 = 20;
const POST: &[u8] = b"POST ";
/// How an answer begins that says the insert is committed.
const SUCCESS: &[u8] = b"HTTP/1.1 2";
const ANSWER_500: &[u8] =
    b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 12\r\n\r\nproxy fault\n";

/// How the proxy behaves. Up is from client to server, down is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Passes everything on at once.
    None,
    /// Cuts the existing connections, and new ones as soon as they are accepted.
    Refuse,
    /// Cuts the existing connections, and is [`Fault::None`] from then on.
    Cut,
    /// No byte passes, no connection is made to the server; on end everything flows on.
    HangBoth,
    /// Bytes up and the client's end are swallowed, bytes down pass; on end the connections are cut.
    HalfOpen,
    /// Bytes up pass, bytes down and the server's end are held back; on end they flow on.
    HangDown,
    /// The next INSERTs that the server answers with 2xx have their answers thrown away and their connections cut.
    SwallowAnswer {
        /// How many.
        count: u32,
    },
    /// The next INSERTs are answered with a 500 from here, and do not reach the server.
    Status500 {
        /// How many.
        count: u32,
    },
    /// The next INSERTs that are long enough are cut in the middle.
    ResetMidBody {
        /// How much of the request goes up, its head included.
        after_bytes: u64,
        /// How many.
        count: u32,
    },
    /// Everything passes this much later; at most [`HELD_BYTES`] are under way.
    Delay(Duration),
    /// Each direction of each connection is throttled.
    Trickle {
        /// 0 counts as 1.
        bytes_per_second: u32,
    },
}

impl Fault {
    fn count_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::SwallowAnswer { count } | Self::Status500 { count } | Self::ResetMidBody { count, .. } => {
                Some(count)
            }
            Self::None
            | Self::Refuse
            | Self::Cut
            | Self::HangBoth
            | Self::HalfOpen
            | Self::HangDown
            | Self::Delay(_)
            | Self::Trickle { .. } => None,
        }
    }

    /// What stays of it: nothing of a one-shot or used-up fault.
    fn settled(mut self) -> Self {
        let used_up = self.count_mut().is_some_and(|count| *count == 0);
        if used_up || self == Self::Cut { Self::None } else { self }
    }
}

/// A running proxy; everything is closed when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens on the loopback.
    pub port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port of the loopback, for a server that listens on `upstream_port` of it, now or later.
    /// A client whose connection the server refuses is cut.
    ///
    /// # Errors
    /// The system has no port or no thread left.
    pub fn start(upstream_port: u16) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::new(upstream_port));
        let (stop, stopped) = oneshot::channel();
        let accepting = accept(Arc::clone(&shared), listener);
        let thread = std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || run(&runtime, accepting, stopped))
            .context("cannot start the proxy's thread")?;
        Ok(Self { port, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Behaves like this from now on: bytes that come in after the return, and those held back, meet the new fault.
    /// A cut reaches the connections that are accepted; see [`Proxy::connections`].
    pub fn set(&self, fault: Fault) {
        self.shared.state.send_modify(|state| {
            let ends_half_open = state.fault == Fault::HalfOpen && fault != Fault::HalfOpen;
            let cuts = ends_half_open || matches!(fault, Fault::Refuse | Fault::Cut);
            state.cuts += u64::from(cuts);
            state.fault = fault.settled();
        });
    }

    /// How it behaves now: a count is what is left of it, and [`Fault::None`] follows when nothing is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.shared.state.borrow().fault
    }

    /// Connections accepted so far, without the refused ones.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// INSERTs met so far by a fault that counts them.
    #[must_use]
    pub fn inserts_hit(&self) -> u64 {
        self.shared.inserts_hit.load(Ordering::Relaxed)
    }

    /// How long INSERTs took that the server answered with 2xx: from the first byte that came in here to the first
    /// of the answer.
    #[must_use]
    pub fn inserts_took(&self) -> Vec<Duration> {
        self.shared.inserts_took().clone()
    }

    /// How many of them there are.
    #[must_use]
    pub fn inserts_answered(&self) -> usize {
        self.shared.inserts_took().len()
    }

    /// Bytes passed on to the server so far.
    #[must_use]
    pub fn bytes_up(&self) -> u64 {
        self.shared.bytes_up.load(Ordering::Relaxed)
    }

    /// Bytes passed on to the clients so far.
    #[must_use]
    pub fn bytes_down(&self) -> u64 {
        self.shared.bytes_down.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the caller's thread and the connections share.
#[derive(Debug)]
struct Shared {
    upstream_port: u16,
    state: watch::Sender<State>,
    connections: AtomicU64,
    inserts_hit: AtomicU64,
    inserts_took: Mutex<Vec<Duration>>,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct State {
    fault: Fault,
    /// How often all connections were cut: an older connection than the last cut has to go.
    cuts: u64,
}

impl Shared {
    fn new(upstream_port: u16) -> Self {
        Self {
            upstream_port,
            state: watch::Sender::new(State { fault: Fault::None, cuts: 0 }),
            connections: AtomicU64::new(0),
            inserts_hit: AtomicU64::new(0),
            inserts_took: Mutex::default(),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
        }
    }

    fn inserts_took(&self) -> MutexGuard<'_, Vec<Duration>> {
        self.inserts_took.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses one of a counted fault, unless it is no longer the one that was `seen`.
    fn take(&self, seen: Fault) -> bool {
        let taken = self.state.send_if_modified(|state| {
            let fresh = state.fault == seen;
            if fresh && let Some(count) = state.fault.count_mut() {
                *count -= 1;
                state.fault = state.fault.settled();
            }
            fresh
        });
        self.inserts_hit.fetch_add(u64::from(taken), Ordering::Relaxed);
        taken
    }
}

fn run(runtime: &Runtime, accepting: impl Future<Output = ()>, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        select! {
            _ = stopped => {}
            () = accepting => {}
        }
    });
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            sleep(Duration::from_millis(10)).await; // no file handle is free
            continue;
        };
        let State { fault, cuts } = *shared.state.borrow();
        if fault == Fault::Refuse {
            reset(client);
        } else {
            shared.connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(Arc::clone(&shared), client, cuts));
        }
    }
}

/// Closes it so that the peer sees a reset.
fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
    drop(stream);
}

/// Ends when every connection accepted at `cuts` has to go.
async fn cut_since(shared: &Shared, cuts: u64) {
    let _ = shared.state.subscribe().wait_for(|state| state.cuts != cuts).await;
}

async fn connect(shared: &Shared) -> io::Result<TcpStream> {
    let _ = shared.state.subscribe().wait_for(|state| state.fault != Fault::HangBoth).await;
    TcpStream::connect((Ipv4Addr::LOCALHOST, shared.upstream_port)).await
}

/// A connection from beginning to end.
async fn serve(shared: Arc<Shared>, mut client: TcpStream, cuts: u64) {
    let server = select! {
        biased;
        () = cut_since(&shared, cuts) => None,
        connected = connect(&shared) => connected.ok(),
    };
    let Some(mut server) = server else { return reset(client) };
    let verdict = select! {
        biased;
        () = cut_since(&shared, cuts) => Verdict::Cut,
        verdict = relay(&shared, &mut client, &mut server) => verdict,
    };
    match verdict {
        Verdict::Ended => {}
        Verdict::Cut => {
            reset(client);
            reset(server);
        }
        Verdict::AnswerSwallowed => {
            reset(client);
            read_off(server).await;
        }
        Verdict::Answer500 => {
            drop(server);
            let _ = client.write_all(ANSWER_500).await;
            read_off(client).await;
        }
    }
}

/// Reads what still comes, so that closing does not reset what the peer has not read yet.
async fn read_off(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let _ = timeout(READ_OFF_WITHIN, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
}

/// Passes bytes on both ways until one of them decides on the connection.
async fn relay(shared: &Shared, client: &mut TcpStream, server: &mut TcpStream) -> Verdict {
    if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
        return Verdict::Cut;
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let exchange = Mutex::new(Exchange::Fresh);
    let up = Pump::new(Direction::Up, shared, &exchange, from_client, to_server);
    let down = Pump::new(Direction::Down, shared, &exchange, from_server, to_client);
    match tokio::try_join!(up.run(), down.run()) {
        Ok(_) => Verdict::Ended,
        Err(verdict) => verdict,
    }
}

/// How a connection goes.
#[derive(Debug)]
enum Verdict {
    /// Both sides have closed, and know it from each other.
    Ended,
    Cut,
    AnswerSwallowed,
    Answer500,
}

/// Where an HTTP connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exchange {
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
enum Head {
    Insert,
    Other,
    /// More bytes are needed.
    Unclear,
}

impl Head {
    fn of(bytes: &[u8], more_may_come: bool) -> Self {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Whether bytes may pass now.
#[derive(Debug, Clone, Copy)]
enum Gate {
    Open { at_most: usize },
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
struct Pump<'a> {
    direction: Direction,
    shared: &'a Shared,
    state: watch::Receiver<State>,
    exchange: &'a Mutex<Exchange>,
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    buffer: Vec<u8>,
    held: Held,
    /// When a throttled direction may pass on the next bytes.
    paid_until: Instant,
    /// What may still go up of a request that will be cut.
    left_to_cut: Option<u64>,
}

impl<'a> Pump<'a> {
    fn new(
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
            paid_until: Instant::now(),
            left_to_cut: None,
        }
    }

    async fn run(mut self) -> Result<(), Verdict> {
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
                () = sleep_until(wake.unwrap_or(self.paid_until)), if wake.is_some() => {}
            }
        }
    }

    fn fault(&self) -> Fault {
        self.shared.state.borrow().fault
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_step(&mut self) -> Result<Step, Verdict> {
        let Some(arrived) = self.held.arrived() else { return Ok(Step::Wait) };
        match self.gate(arrived) {
            Gate::Open { at_most } => self.pass(at_most),
            Gate::OpensAt(at) => Ok(Step::Sleep(at)),
            Gate::Shut => Ok(Step::Wait),
            Gate::Swallows => {
                self.held.reads.clear();
                Ok(Step::Wait)
            }
        }
    }

    fn gate(&self, arrived: Instant) -> Gate {
        let open = Gate::Open { at_most: usize::MAX };
        match self.fault() {
            Fault::HangBoth => Gate::Shut,
            Fault::HangDown if self.direction == Direction::Down => Gate::Shut,
            Fault::HalfOpen if self.direction == Direction::Up => Gate::Swallows,
            Fault::Delay(delay) => match arrived.checked_add(delay) {
                Some(at) if at > Instant::now() => Gate::OpensAt(at),
                Some(_) => open,
                None => Gate::Shut,
            },
            Fault::Trickle { .. } if self.paid_until > Instant::now() => Gate::OpensAt(self.paid_until),
            Fault::Trickle { bytes_per_second } => {
                Gate::Open { at_most: (bytes_per_second / TRICKLES_PER_SECOND).max(1) as usize }
            }
            Fault::None
            | Fault::Refuse
            | Fault::Cut
            | Fault::HalfOpen
            | Fault::HangDown
            | Fault::SwallowAnswer { .. }
            | Fault::Status500 { .. }
            | Fault::ResetMidBody { .. } => open,
        }
    }

    fn pass(&mut self, at_most: usize) -> Result<Step, Verdict> {
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
        Ok(Step::Write(self.held.front(at_most.min(left_to_cut)).len()))
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
        let passed = match self.direction {
            Direction::Up => &self.shared.bytes_up,
            Direction::Down => &self.shared.bytes_down,
        };
        passed.fetch_add(len as u64, Ordering::Relaxed);
        self.left_to_cut = self.left_to_cut.map(|left| left.saturating_sub(len as u64));
        if let Fault::Trickle { bytes_per_second } = self.fault() {
            let takes = Duration::from_secs(len as u64) / bytes_per_second.max(1);
            self.paid_until = self.paid_until.max(Instant::now()) + takes;
        }
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

/// What was read and has not been passed on.
#[derive(Debug, Default)]
struct Held {
    reads: VecDeque<Read>,
    end: Option<End>,
}

#[derive(Debug)]
struct Read {
    bytes: BytesMut,
    arrived: Instant,
}

/// The end of what is read: it waits its turn like the bytes before it.
#[derive(Debug, Clone, Copy)]
struct End {
    arrived: Instant,
    /// Closed, not reset.
    regular: bool,
}

impl Held {
    /// How much may be read now.
    fn room(&self) -> usize {
        if self.end.is_some() || self.reads.len() >= HELD_READS {
            return 0;
        }
        HELD_BYTES - self.reads.iter().map(|read| read.bytes.len()).sum::<usize>()
    }

    /// Whether anything comes after the front read.
    fn more_may_come(&self) -> bool {
        self.end.is_none() || self.reads.len() > 1
    }

    fn arrived(&self) -> Option<Instant> {
        self.reads.front().map(|read| read.arrived).or(self.end.map(|end| end.arrived))
    }

    /// The front read, or its beginning.
    fn front(&self, at_most: usize) -> &[u8] {
        let bytes = self.reads.front().map_or(&[][..], |read| &read.bytes);
        &bytes[..bytes.len().min(at_most)]
    }

    fn push(&mut self, bytes: &[u8], arrived: Instant) {
        self.reads.push_back(Read { bytes: bytes.into(), arrived });
    }

    fn advance(&mut self, len: usize) {
        if let Some(front) = self.reads.front_mut() {
            front.bytes.advance(len);
            if front.bytes.is_empty() {
                self.reads.pop_front();
            }
        }
    }

    /// Makes one read of the first two, as late as the second; whether there were two.
    fn join_front(&mut self) -> bool {
        if self.reads.len() < 2 {
            return false;
        }
        if let (Some(first), Some(second)) = (self.reads.pop_front(), self.reads.front_mut()) {
            let joined = [&first.bytes[..], &second.bytes[..]].concat();
            second.bytes = joined[..].into();
        }
        true
    }
}

#[cfg(test)]
mod tests;
