//! What the caller says.

use std::path::PathBuf;

use anyhow::Result;

/// Where the replicas are, and how they are harmed. A command is one for the shell; rows without
/// theirs are left out.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// A replica's `http://host:port`; at least two, and the first one is harmed
    #[arg(long, required = true)]
    pub(super) replica: Vec<String>,
    /// What balances them, `http://host:port`; it is to ask the first one first
    #[arg(long)]
    pub(super) balancer: String,
    /// Kills the first replica
    #[arg(long)]
    pub(super) kill: Option<String>,
    /// Kills it, and takes its disk
    #[arg(long)]
    pub(super) wipe: Option<String>,
    /// Starts it again, with what it has on its disk
    #[arg(long)]
    pub(super) start: Option<String>,
    /// Lets no replica fetch from it, nor it from them
    #[arg(long)]
    pub(super) cut: Option<String>,
    /// Ends that
    #[arg(long)]
    pub(super) heal: Option<String>,
    /// Has the balancer ask the second replica first
    #[arg(long)]
    pub(super) turn: Option<String>,
    /// And the first one again
    #[arg(long)]
    pub(super) turn_back: Option<String>,
    /// Takes the Keeper away
    #[arg(long)]
    pub(super) keeper_stop: Option<String>,
    /// Brings it back
    #[arg(long)]
    pub(super) keeper_start: Option<String>,
    /// Only this row; may be given several times
    #[arg(long)]
    pub(super) only: Vec<String>,
    /// As clickhouse.insert_quorum; 0 breaks the rule on purpose
    #[arg(long, default_value = "auto")]
    pub(super) insert_quorum: String,
    /// Builds mileposts with planted mistakes instead; each must fail its row
    #[arg(long)]
    pub(super) prove: bool,
    /// The binary
    #[arg(long, default_value = "target/release/milepost")]
    pub(super) milepost: PathBuf,
}

impl Arguments {
    /// Asks a replica with the login of the environment.
    pub(super) fn query(&self, url: &str, sql: &str) -> Result<String> {
        lab_stack::query(url, lab_stack::password().as_deref(), sql)
    }
}
