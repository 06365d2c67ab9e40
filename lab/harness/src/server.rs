//! A TCP server on the loopback with its own thread, for the proxies and stand-ins.

use std::net::Ipv4Addr;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::oneshot;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// A running server. Dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on a free port. `serve` is called for each accepted connection, and the future that
    /// it returns runs as a task. `receive_buffer`: bytes; with a small buffer, a client is still
    /// writing a large body when the answer arrives.
    pub(crate) fn start<Served: Future<Output = ()> + Send + 'static>(
        receive_buffer: Option<u32>,
        serve: impl Fn(TcpStream) -> Served + Send + 'static,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = runtime.block_on(async { socket.listen(BACKLOG) })?;
        let port = listener.local_addr()?.port();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                select! {
                    _ = stopped => {}
                    () = accept(listener, serve) => {}
                }
            });
        });
        Ok(Self { port, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Accepts connections for ever, and serves each in a task of its own.
async fn accept<Served: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    serve: impl Fn(TcpStream) -> Served,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
            // No file descriptor is free.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
