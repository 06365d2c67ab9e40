//! The command line.

use std::num::{NonZeroU16, NonZeroU64};
use std::time::Duration;

use clap::{ArgAction, Parser};

use crate::mailbox::Pace;

/// EMQX's `broker.shared_subscription_strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Strategy {
    RoundRobin,
    Local,
}

/// An MQTT 5 broker for tests: exact in its windows, and with the behaviour of EMQX. Listens on
/// 127.0.0.1 only.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// Port for clients; 0 takes a free port and prints it to stderr
    #[arg(long)]
    pub(crate) port: u16,
    /// Port of the cluster's second node; 0 takes a free port
    #[arg(long)]
    pub(crate) second_port: Option<u16>,
    /// Which member of a share group receives a message; `local`: a member on the publisher's node,
    /// if there is one
    #[arg(long, value_enum, default_value = "round-robin")]
    pub(crate) strategy: Strategy,
    /// Port for commands, see the top of src/control.rs; 0 takes a free port and prints it
    #[arg(long)]
    pub(crate) control: Option<u16>,
    /// Largest number of unacknowledged messages of a session; the client's Receive Maximum if that
    /// is smaller (EMQX: 32)
    #[arg(long, default_value = "65535")]
    pub(crate) max_inflight: NonZeroU16,
    /// Largest number of messages that wait for a session beyond its window; the oldest of more
    /// messages are dropped (EMQX: 1000)
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) max_queue: usize,
    /// Whether CONNACK announces the window
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub(crate) announce: bool,

    /// Messages a second that a session's process handles; default: no limit. 25000 behaves like
    /// EMQX: the session sustains 20000, even after a pause of about 80 ms, and fails at 30000
    #[arg(long, value_parser = rate)]
    pub(crate) session_rate: Option<f64>,
    /// Extra time to handle a message, for each message in the mailbox
    #[arg(long, default_value = "5ns", value_parser = humantime::parse_duration)]
    pub(crate) mailbox_scan: Duration,
    /// Messages in the mailbox above which the session is killed; only with --session-rate
    #[arg(long, default_value_t = 1_000)]
    pub(crate) max_mailbox: usize,

    /// Time for which a session that expires, or ends with its connection, remains a member;
    /// messages routed to the session are lost
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) dying: Duration,
    /// Time for which messages for a session are lost and not counted after the other node takes
    /// the session over (EMQX: some dozen messages)
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) takeover_gap: Duration,
    /// Time for which a client id is refused with 0x89 after its session ended with its connection
    /// (EMQX: until the former process is cleaned up)
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) cleanup: Duration,
    /// Loses every Nth message after acknowledging it; only the control command `counters` shows
    /// how many
    #[arg(long)]
    pub(crate) lose_every: Option<NonZeroU64>,
    /// Rate at which a CONNECT takes over the messages of an existing session before its CONNACK,
    /// in messages a second; a client that disconnects meanwhile empties the session
    #[arg(long, value_parser = rate)]
    pub(crate) resume_rate: Option<f64>,
}

impl Options {
    /// Returns the speed of a session's process, if it is limited.
    pub(crate) fn pace(&self) -> Option<Pace> {
        let per_message = Duration::from_secs_f64(1.0 / self.session_rate?);
        Some(Pace { per_message, scan: self.mailbox_scan, waiting_max: self.max_mailbox })
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (1e-3..=1e9).contains(rate));
    rate.ok_or_else(|| format!("{text}: must be a number from 0.001 to 1e9"))
}
