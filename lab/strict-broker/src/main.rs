//! strict-broker: an MQTT 5 broker for tests. `strict-broker --help` lists its options.
//!
//! It is exact where Mosquitto 2.0.11 is not: a session's window is the smaller of the client's
//! Receive Maximum and `--max-inflight`, and when it is full, each acknowledgement lets one more
//! message out. A session that comes back gets what is unacknowledged, under its old packet ids and
//! with DUP, in order, before anything new.
//!
//! And it has the manners of EMQX 5.8, which no polite broker shows. Each has an option, or is a
//! command while it runs (`control.rs`):
//!
//! * a session is one process with a rate and a mailbox, and is killed when that overflows
//!   (`mailbox.rs`);
//! * what a session held when it ends goes to its group, or not: it depends on how it ends
//!   (`broker.rs`);
//! * taking over a large session takes time, and giving up empties it (`handshake.rs`);
//! * two nodes are a cluster (`--second-port`); the shared subscriptions of one that was killed
//!   stay in the table as ghosts, whose share is acknowledged to the publisher and lost
//!   (`router.rs`), and so is what comes while the other node takes a session over;
//! * a client id is refused for a while after its session ended (`--cleanup`), and everything
//!   around a stop and a boot (`deny`);
//! * messages that are acknowledged and lost, as many as it is asked to lose (`--lose-every`,
//!   `lose`);
//! * answers that are late or never come.
//!
//! | room | job |
//! |---|---|
//! | `packet`, `filter` | bytes to packets, and topics to filters |
//! | `outbox`, `mailbox`, `session` | one session; they take `now`, and do no I/O |
//! | `router`, `broker` | all of them: subscriptions, groups, lives |
//! | `hub` | what all connections share |
//! | `socket`, `handshake`, `connection` | a client |
//! | `control`, `orders`, `options` | what you tell it |
//!
//! What it does not do: QoS 2, retained messages, subscription identifiers, client ids of its own
//! choice and topic aliases, all of which it refuses; a subscription at QoS 2 is granted QoS 1.
//! MQTT 3.1.1, TLS, logins, wills, message expiry, "no local", a client's Maximum Packet Size and
//! `$queue/`. One line on stderr says that it listens, and one each that a session was killed.
//! SIGTERM or SIGINT ends it.

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

/// How often sessions without a connection are looked at.
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
        Err(why) => {
            eprintln!("strict-broker: {why:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let options = Rc::new(options);
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let broker = Broker::new(Rc::clone(&options)).into();
    let hub = Rc::new(Hub { options: Rc::clone(&options), broker, orders: RefCell::default() });
    // The control port first: who waits until clients are served can give orders at once.
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
    let told = if options.announce { "announced" } else { "not announced" };
    line.insert_str(0, &format!("listening on {}", listener.local_addr()?));
    // In one write: eprintln! would let another process's line in between.
    let line = format!("strict-broker: {line}, max inflight {}, {told}\n", options.max_inflight);
    std::io::stderr().write_all(line.as_bytes()).context("cannot write to stderr")?;
    tokio::select! {
        () = serve(listener, &hub, 0) => {}
        () = async { serve(second.expect("it is there"), &hub, 1).await }, if options.second_port.is_some() => {}
        () = keep_time(&hub) => {}
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
            // Too many open files, say: those that are served come first.
            Err(_) => tokio::time::sleep(TICK).await,
        }
    }
}

async fn keep_time(hub: &Hub) {
    loop {
        tokio::time::sleep(TICK).await;
        hub.broker.borrow_mut().tick(Instant::now());
    }
}
