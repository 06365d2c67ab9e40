//! strict-broker: a small real MQTT 5 broker for tests. It enforces Receive Maximum as EMQX does.
//!
//! ```text
//! strict-broker --port P [--max-inflight N] [--max-queue N] [--announce true|false]
//!               [--max-packet-bytes N]
//! ```
//!
//! | option               | default | meaning                                                        |
//! |----------------------|---------|----------------------------------------------------------------|
//! | `--port`             | (none)  | listens on 127.0.0.1 only                                      |
//! | `--max-inflight`     | 65535   | most unacknowledged QoS 1 and 2 deliveries in one session      |
//! | `--max-queue`        | 1000000 | messages kept for one session beyond the window; oldest go first |
//! | `--announce`         | true    | whether CONNACK names the window (see `window.rs`)             |
//! | `--max-packet-bytes` | 1048576 | largest packet a client may send                               |
//!
//! A session's window is the smaller of the client's Receive Maximum and `--max-inflight`; when it
//! is full, each acknowledgement lets exactly one more message out. One line on stderr says that
//! the broker listens. SIGTERM or SIGINT ends it; it keeps nothing on disk.
//!
//! The protocol is the crate rmqtt 0.24, used as a library. What EMQX does otherwise is here:
//!
//! * `group.rs`: shared subscriptions, round robin over the members;
//! * `handover.rs`: a session that returns gets everything it is owed, in order, before anything new;
//! * `window.rs`: the window that CONNACK does not tell;
//! * `retained.rs`: retained messages.
//!
//! What still differs from EMQX:
//!
//! * a QoS 0 message waits its turn behind a full window;
//! * a session that ends takes its unacknowledged messages with it instead of passing them to its
//!   group;
//! * what a returning session is owed passes through its queue, so `--max-queue` smaller than that
//!   (window and queue together) drops the oldest of it;
//! * while a session returns, all publishers wait until its messages have been moved.
//!
//! It builds for minutes and is therefore a workspace of its own. In this directory:
//! `cargo build --release` makes `../../target/strict-broker/release/strict-broker`,
//! `cargo test --release` tests it, `cargo test --release -- --ignored --nocapture` measures it.

mod group;
mod handover;
mod retained;
mod window;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::process::ExitCode;
use std::time::Duration;

use rmqtt::context::ServerContext;
use rmqtt::net::Builder;
use rmqtt::server::MqttServer;
use tokio::signal::unix::{SignalKind, signal};

/// The client's Session Expiry Interval holds up to this.
const LONGEST_SESSION: Duration = Duration::from_secs(3600);
/// A client that reads nothing is cut off after this. Up to three of them pass until its session is
/// free for its next connection, which makes it the 15 s that EMQX takes.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("strict-broker: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let options = Options::parse(std::env::args().skip(1))?;
    let stop = |kind| signal(kind).map_err(|e| format!("cannot wait for signals: {e}"));
    let (mut term, mut int) = (stop(SignalKind::terminate())?, stop(SignalKind::interrupt())?);

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let listener = Builder::new()
        .name("mqtt")
        .laddr(address)
        .reuseaddr(Some(true)) // a test restarts the broker on its old port at once
        .nodelay(true)
        .allow_anonymous(true)
        .max_packet_size(options.max_packet_bytes)
        .max_inflight(options.max_inflight)
        .max_mqueue_len(options.max_queue)
        .max_session_expiry_interval(LONGEST_SESSION)
        .send_timeout(SEND_TIMEOUT)
        // rmqtt re-sends an unacknowledged message on the live connection after the smaller of
        // these two; MQTT 5 (4.4) forbids it. It stops only when both are zero. Zero also means
        // that a message expires only if its publisher says so.
        .message_retry_interval(Duration::ZERO)
        .message_expiry_interval(Duration::ZERO)
        .bind()
        .and_then(|listener| listener.tcp())
        .map_err(|e| format!("cannot listen on {address}: {e}"))?;

    // The busy check turns clients away when the machine's load is high, as it is in a load test.
    let scx = ServerContext::new().busy_check_enable(false).build().await;
    group::install(&scx).await;
    handover::install(&scx).await;
    retained::install(&scx).await;
    if !options.announce {
        window::hide(&scx).await;
    }

    let told = if options.announce { "announced" } else { "not announced" };
    let line =
        format!("strict-broker: listening on {address}, max inflight {}, {told}\n", options.max_inflight);
    // In one write: eprintln! would let another process's line in between.
    std::io::stderr().write_all(line.as_bytes()).map_err(|e| format!("cannot write to stderr: {e}"))?;
    tokio::select! {
        served = MqttServer::new(scx).listener(listener).build().run() => {
            served.map_err(|e| format!("stopped serving: {e}"))
        }
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
    }
}

/// The command line.
struct Options {
    port: u16,
    max_inflight: NonZeroU16,
    max_queue: usize,
    announce: bool,
    max_packet_bytes: u32,
}

impl Options {
    /// Every option is `--name value`; the last one of a name holds.
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut port = None;
        let (mut max_inflight, mut max_queue) = (NonZeroU16::MAX, 1_000_000);
        let (mut announce, mut max_packet_bytes) = (true, 1_048_576);
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--port" => port = Some(value_of::<NonZeroU16>(&name, &value)?.get()),
                "--max-inflight" => max_inflight = value_of(&name, &value)?,
                "--max-queue" => max_queue = value_of(&name, &value)?,
                "--announce" => announce = value_of(&name, &value)?,
                "--max-packet-bytes" => max_packet_bytes = value_of(&name, &value)?,
                _ => return Err(format!("unknown option {name}; see the top of src/main.rs")),
            }
        }
        let port = port.ok_or("--port is missing")?;
        Ok(Self { port, max_inflight, max_queue, announce, max_packet_bytes })
    }
}

fn value_of<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} {value}: not a value this option takes"))
}
