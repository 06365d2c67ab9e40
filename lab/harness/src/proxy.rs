//! A TCP proxy that fails on demand, between a client and a real server.
//!
//! Guarantee: the proxy forwards bytes unchanged, complete and in order, or resets their
//! connection. The one exception is [`Fault::HalfOpen`], whose connections are reset when the fault
//! ends. The proxy buffers at most 256 KiB in each direction; then it stops reading.

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

/// A running proxy. Dropping it closes all connections.
#[derive(Debug)]
pub struct Proxy {
    /// Port of the listener on the loopback.
    pub port: u16,
    shared: Arc<Shared>,
    _server: Server,
}

impl Proxy {
    /// Listens on a free port of the loopback, and forwards to `upstream_port`, where the server
    /// may start later. A client whose connection the server refuses is reset.
    pub fn start(upstream_port: u16) -> Result<Self> {
        let state = watch::Sender::new(State { fault: Fault::None, cuts: 0 });
        let shared =
            Arc::new(Shared { upstream: (Ipv4Addr::LOCALHOST, upstream_port).into(), state });
        let server_shared = Arc::clone(&shared);
        let server = Server::start(None, move |client| {
            let (shared, state) = (Arc::clone(&server_shared), *server_shared.state.borrow());
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

    /// Sets the fault. The fault applies to bytes that arrive after this function returns, and to
    /// bytes that the proxy still holds. A cut resets all accepted connections.
    pub fn set(&self, fault: Fault) {
        self.shared.state.send_modify(|state| {
            let ends_half_open = state.fault == Fault::HalfOpen && fault != Fault::HalfOpen;
            state.cuts += u64::from(ends_half_open || matches!(fault, Fault::Refuse | Fault::Cut));
            state.fault = if fault == Fault::Cut { Fault::None } else { fault };
        });
    }
}

/// Closes the stream so that the peer sees a reset.
fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
    drop(stream);
}

/// Waits until all connections accepted at `cuts` must be reset.
async fn wait_for_cut(shared: &Shared, cuts: u64) {
    let _ = shared.state.subscribe().wait_for(|state| state.cuts != cuts).await;
}

/// Connects to the server, once a fault that hangs both directions has ended.
async fn connect(shared: &Shared) -> io::Result<TcpStream> {
    let _ = shared.state.subscribe().wait_for(|state| state.fault != Fault::HangBoth).await;
    TcpStream::connect(shared.upstream).await
}

/// Serves one connection from accept to close.
async fn serve(shared: Arc<Shared>, mut client: TcpStream, cuts: u64) {
    let server = select! {
        biased;
        () = wait_for_cut(&shared, cuts) => None,
        connected = connect(&shared) => connected.ok(),
    };
    let Some(mut server) = server else { return reset(client) };
    let ended = select! {
        biased;
        () = wait_for_cut(&shared, cuts) => Err(Cut),
        ended = relay(&shared, &mut client, &mut server) => ended,
    };
    if let Err(Cut) = ended {
        reset(client);
        reset(server);
    }
}

/// Forwards bytes both ways. `Ok`: both sides have closed.
async fn relay(shared: &Shared, client: &mut TcpStream, server: &mut TcpStream) -> Result<(), Cut> {
    client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).map_err(|_| Cut)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let up = Pump::new(Direction::Up, shared, from_client, to_server);
    let down = Pump::new(Direction::Down, shared, from_server, to_client);
    tokio::try_join!(up.run(), down.run()).map(drop)
}
