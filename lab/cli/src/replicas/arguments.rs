//! The arguments of `lab replicas`.

use std::path::PathBuf;

use anyhow::Result;

/// The addresses of the replicas, and the shell commands that harm them. Rows whose commands are
/// absent are skipped.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// URL of a replica, `http://host:port`; at least two, and the first one is harmed
    #[arg(long, required = true)]
    pub(super) replica: Vec<String>,
    /// URL of the load balancer, `http://host:port`; it must prefer the first replica
    #[arg(long)]
    pub(super) balancer: String,
    /// Shell command that kills the first replica
    #[arg(long)]
    pub(super) kill: Option<String>,
    /// Shell command that kills the first replica and deletes its disk
    #[arg(long)]
    pub(super) wipe: Option<String>,
    /// Shell command that starts the first replica again, with the data on its disk
    #[arg(long)]
    pub(super) start: Option<String>,
    /// Shell command that stops all fetches between the first replica and the others
    #[arg(long)]
    pub(super) cut: Option<String>,
    /// Shell command that allows the fetches again
    #[arg(long)]
    pub(super) heal: Option<String>,
    /// Shell command that makes the balancer prefer the second replica
    #[arg(long)]
    pub(super) turn: Option<String>,
    /// Shell command that makes the balancer prefer the first replica again
    #[arg(long)]
    pub(super) turn_back: Option<String>,
    /// Shell command that stops the Keeper
    #[arg(long)]
    pub(super) keeper_stop: Option<String>,
    /// Shell command that starts the Keeper again
    #[arg(long)]
    pub(super) keeper_start: Option<String>,
    /// Only this row; may be given several times
    #[arg(long)]
    pub(super) only: Vec<String>,
    /// Value of clickhouse.insert_quorum; 0 breaks the guarantee on purpose
    #[arg(long, default_value = "auto")]
    pub(super) insert_quorum: String,
    /// Build mileposts with planted mistakes instead; each must fail its row
    #[arg(long)]
    pub(super) prove: bool,
    /// The milepost binary
    #[arg(long, default_value = "target/release/milepost")]
    pub(super) milepost: PathBuf,
}

impl Arguments {
    /// Runs a query on a replica, with the login of the environment.
    pub(super) fn query(&self, url: &str, sql: &str) -> Result<String> {
        lab_stack::query(url, lab_stack::password().as_deref(), sql)
    }
}
