//! strict-broker: an MQTT 5 broker for tests. `strict-broker --help` lists its options.
//!
//! strict-broker is exact where Mosquitto 2.0.11 is not: the window of a session is the smaller of
//! the client's Receive Maximum and `--max-inflight`, and while the window is full, the broker
//! sends one message for each acknowledgement. A resumed session receives its unacknowledged
//! messages with their old packet ids and DUP, in order, before any new messages.
//!
//! strict-broker also behaves as EMQX 5.8 does under stress. Each behaviour has an option, or a
//! command for the running broker (`control.rs`):
//!
//! * a session is one process with a rate and a mailbox, and is killed when the mailbox overflows
//!   (`mailbox.rs`);
//! * when a session ends, its messages go to its group or are lost, depending on how the session
//!   ends (`broker.rs`);
//! * taking over a large session takes time, and a client that disconnects meanwhile empties it
//!   (`handshake.rs`);
//! * two nodes form a cluster (`--second-port`); the shared subscriptions of a killed node stay in
//!   the table as ghosts, whose messages are acknowledged to the publisher and lost (`router.rs`),
//!   as are messages that arrive while the other node takes a session over;
//! * a client id is refused for a while after its session ended (`--cleanup`), and every request is
//!   refused around a stop and a boot (`deny`);
//! * messages are acknowledged and lost on request (`--lose-every`, `lose`);
//! * answers are late or never sent.
//!
//! | module | job |
//! |---|---|
//! | `packet`, `filter` | decode and encode packets, match topics with filters |
//! | `outbox`, `mailbox`, `session` | one session; these modules take `now` and do no I/O |
//! | `router`, `broker` | all sessions: subscriptions, groups, beginning and end |
//! | `hub` | the state that all connections share |
//! | `socket`, `handshake`, `connection` | one client |
//! | `control`, `orders`, `options` | commands and options |
//!
//! The broker refuses QoS 2, retained messages, subscription identifiers, empty client ids and
//! topic aliases; a subscription at QoS 2 is granted QoS 1. It lacks MQTT 3.1.1, TLS, logins,
//! wills, message expiry, "no local", a client's Maximum Packet Size and `$queue/`. It prints one
//! line to stderr when it listens, and one for each killed session. SIGTERM or SIGINT ends it.

mod broker;
mod connection;
mod control;
mod filter;
mod handshake;
mod hub;
mod mailbox;
mod options;
mod orders;
mod outbox;
mod packet;
mod router;
mod session;
mod socket;

use std::cell::RefCell;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use crate::broker::Broker;
use crate::hub::Hub;
use crate::options::Options;

/// Interval at which sessions without a connection are handled.
const TICK: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { 2.into() } else { ExitCode::SUCCESS };
        }
    };
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime")
        .and_then(|runtime| LocalSet::new().block_on(&runtime, run(options)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("strict-broker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let options = Rc::new(options);
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let broker = Broker::new(Rc::clone(&options)).into();
    let hub = Rc::new(Hub { options: Rc::clone(&options), broker, orders: RefCell::default() });
    // Open the control port first: once a client is served, commands are accepted as well.
    let mut line = String::new();
    if let Some(port) = options.control {
        let listener = listen(port).await?;
        line = format!(", control on {}", listener.local_addr()?);
        tokio::task::spawn_local(control::serve(listener, Rc::clone(&hub)));
    }
    let listener = listen(options.port).await?;
    let second = match options.second_port {
        Some(port) => Some(listen(port).await?),
        None => None,
    };
    let announced = if options.announce { "announced" } else { "not announced" };
    line.insert_str(0, &format!("listening on {}", listener.local_addr()?));
    // One write, because eprintln! could be interleaved with another process's line.
    let line =
        format!("strict-broker: {line}, max inflight {}, {announced}\n", options.max_inflight);
    std::io::stderr().write_all(line.as_bytes()).context("cannot write to stderr")?;
    tokio::select! {
        () = serve(listener, &hub, 0) => {}
        () = async { serve(second.expect("opened above"), &hub, 1).await }, if options.second_port.is_some() => {}
        () = tick_regularly(&hub) => {}
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

async fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .with_context(|| format!("cannot listen on port {port}"))
}

async fn serve(listener: TcpListener, hub: &Rc<Hub>, node: usize) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                drop(tokio::task::spawn_local(connection::serve(stream, Rc::clone(hub), node)));
            }
            // Without a free file descriptor, for example: wait for a connection to end.
            Err(_) => tokio::time::sleep(TICK).await,
        }
    }
}

async fn tick_regularly(hub: &Hub) {
    loop {
        tokio::time::sleep(TICK).await;
        hub.broker.borrow_mut().tick(Instant::now());
    }
}
