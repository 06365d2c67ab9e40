//! A TCP proxy that fails on demand, between a client and a real server.
//!
//! Guarantee: bytes go on unchanged, complete and in order, or their connection is cut. The one
//! exception is
//! [`Fault::HalfOpen`], whose connections are cut when it ends. It holds at most 256 KiB a direction; then it stops reading.

mod fault;
mod pump;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use tokio::net::TcpStream;
use tokio::select;
use tokio::sync::watch;

pub use self::fault::Fault;
use self::fault::{Shared, State};
use self::pump::{Cut, Direction, Pump};
use crate::server::Server;

/// A running proxy; dropping it closes everything.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens on the loopback.
    pub port: u16,
    shared: Arc<Shared>,
    _server: Server,
}

impl Proxy {
    /// Listens on a free port of the loopback, for a server that listens on `upstream_port` of it,
    /// now or later. Cuts a client whose connection the server refuses.
    pub fn start(upstream_port: u16) -> Result<Self> {
        let state = watch::Sender::new(State { fault: Fault::None, cuts: 0 });
        let shared =
            Arc::new(Shared { upstream: (Ipv4Addr::LOCALHOST, upstream_port).into(), state });
        let serving = Arc::clone(&shared);
        let server = Server::start(None, move |client| {
            let (shared, state) = (Arc::clone(&serving), *serving.state.borrow());
            async move {
                if state.fault == Fault::Refuse {
                    reset(client);
                } else {
                    serve(shared, client, state.cuts).await;
                }
            }
        })?;
        Ok(Self { port: server.port, shared, _server: server })
    }

    /// Behaves like this from now on: bytes that come in after the return, and those held back,
    /// meet the new fault. A cut reaches the connections that are accepted.
    pub fn set(&self, fault: Fault) {
        self.shared.state.send_modify(|state| {
            let ends_half_open = state.fault == Fault::HalfOpen && fault != Fault::HalfOpen;
            state.cuts += u64::from(ends_half_open || matches!(fault, Fault::Refuse | Fault::Cut));
            state.fault = if fault == Fault::Cut { Fault::None } else { fault };
        });
    }
}

/// Closes it so that the peer sees a reset.
fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
    drop(stream);
}

/// Returns when every connection accepted at `cuts` has to go.
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
    let ended = select! {
        biased;
        () = cut_since(&shared, cuts) => Err(Cut),
        ended = relay(&shared, &mut client, &mut server) => ended,
    };
    if let Err(Cut) = ended {
        reset(client);
        reset(server);
    }
}

/// Passes bytes on both ways; `Ok`: both sides have closed.
async fn relay(shared: &Shared, client: &mut TcpStream, server: &mut TcpStream) -> Result<(), Cut> {
    client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).map_err(|_| Cut)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let up = Pump::new(Direction::Up, shared, from_client, to_server);
    let down = Pump::new(Direction::Down, shared, from_server, to_client);
    tokio::try_join!(up.run(), down.run()).map(drop)
}
