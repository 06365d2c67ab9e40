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

/// An MQTT 5 broker for tests: exact in its windows, and with EMQX's manners. On 127.0.0.1 alone.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// Where clients connect; 0 takes a free port, which is told on stderr
    #[arg(long)]
    pub(crate) port: u16,
    /// Where clients connect to the cluster's second node; 0 takes a free port
    #[arg(long)]
    pub(crate) second_port: Option<u16>,
    /// Which member of a share group gets a message; `local`: one on the publisher's node, as long
    /// as there is one
    #[arg(long, value_enum, default_value = "round-robin")]
    pub(crate) strategy: Strategy,
    /// Where you tell it what to do, see the top of src/control.rs; 0 takes a free port, which is
    /// told too
    #[arg(long)]
    pub(crate) control: Option<u16>,
    /// Most unacknowledged messages of a session; the client's Receive Maximum if that is smaller
    /// (EMQX: 32)
    #[arg(long, default_value = "65535")]
    pub(crate) max_inflight: NonZeroU16,
    /// Messages that wait for a session beyond its window; then the oldest go (EMQX: 1000)
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) max_queue: usize,
    /// Whether CONNACK tells the window
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub(crate) announce: bool,

    /// Messages a second that a session's process handles; without it, as many as come. As EMQX
    /// does, 25000 holds a load of 20000, also over a pause of some 80 ms, and breaks under 30000
    #[arg(long, value_parser = rate)]
    pub(crate) session_rate: Option<f64>,
    /// What a message costs that process more for each one in its mailbox
    #[arg(long, default_value = "5ns", value_parser = humantime::parse_duration)]
    pub(crate) mailbox_scan: Duration,
    /// Messages in the mailbox above which the session is killed; only with --session-rate
    #[arg(long, default_value_t = 1_000)]
    pub(crate) max_mailbox: usize,

    /// A session that expires, or ends with its connection, remains a member for so long: what it
    /// is given is lost
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) dying: Duration,
    /// When the other node takes a session over, what comes for it is lost for so long, uncounted
    /// (EMQX: some dozen messages)
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) takeover_gap: Duration,
    /// A client id is refused with 0x89 for this long after its session ended with its connection
    /// (EMQX: while the former process is cleaned up)
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) cleanup: Duration,
    /// Loses every Nth message after acknowledging it: the control command `counters` alone shows
    /// how many
    #[arg(long)]
    pub(crate) lose_every: Option<NonZeroU64>,
    /// Messages a second that a CONNECT of an old session takes over, before CONNACK; giving up
    /// meanwhile empties it
    #[arg(long, value_parser = rate)]
    pub(crate) resume_rate: Option<f64>,
}

impl Options {
    /// How fast a session's process is, if that is limited.
    pub(crate) fn pace(&self) -> Option<Pace> {
        let each = Duration::from_secs_f64(1.0 / self.session_rate?);
        Some(Pace { each, scan: self.mailbox_scan, waiting_max: self.max_mailbox })
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (1e-3..=1e9).contains(rate));
    rate.ok_or_else(|| format!("{text}: a number above 0 is wanted"))
}
