//! A TCP proxy that fails on demand, to stand between a client and a real server. For the fault harness.
//!
//! Guarantee: bytes go on unchanged, complete and in order, or their connection is cut. The one exception is
//! [`Fault::HalfOpen`], whose connections are cut when it ends. At most 256 KiB a direction are held
//! here; then the proxy stops reading.
//!
//! HTTP is looked at only as far as the faults on INSERT requests need it. A request begins with the first bytes
//! that go up on a connection, or the first after an answer began to come down; clients that pipeline, or that
//! wait for `100 Continue`, are not understood. An INSERT is a POST with `query=INSERT…` in its request line.

mod fault;
mod held;
mod http;
mod pump;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::select;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

pub use self::fault::Fault;
use self::fault::{Shared, State};
use self::http::Exchange;
use self::pump::{Direction, Pump, Verdict};

const READ_OFF_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_500: &[u8] =
    b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 12\r\n\r\nproxy fault\n";

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
    pub fn start(upstream_port: u16) -> Result<Self> {
        Self::before((Ipv4Addr::LOCALHOST, upstream_port).into())
    }

    /// The same for a server anywhere.
    pub fn before(upstream: SocketAddr) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::new(upstream));
        let (stop, stopped) = oneshot::channel();
        let accepting = accept(Arc::clone(&shared), listener);
        let thread = std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || run(&runtime, accepting, stopped))
            .context("cannot start the proxy's thread")?;
        Ok(Self { port, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Behaves like this from now on: bytes that come in after the return, and those held back, meet the new fault.
    /// A cut reaches the connections that are accepted.
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
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
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
    TcpStream::connect(shared.upstream).await
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
