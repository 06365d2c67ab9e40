//! A row of the fault table: the setup of its scene, and the function that runs the row.

use std::time::Duration;

use anyhow::Result;
use loadgen::format::Format;

use crate::scene::{Scene, Setup};

/// A fault, with the conditions under which it occurs.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Part of the quick subset, `--quick`.
    pub(crate) quick: bool,
    /// Part of a run without `--only` and `--quick`.
    pub(crate) in_full_run: bool,
    pub(crate) setup: Setup,
    pub(crate) act: fn(&mut Scene) -> Result<()>,
}

/// Longest wait for a condition while a row runs.
pub(crate) const SETTLE: Duration = Duration::from_secs(30);

/// Returns a row with one member on Mosquitto. `rate`: messages a second; `seconds`: duration of
/// the planned load.
pub(crate) fn row(
    name: &'static str,
    description: &'static str,
    (rate, seconds): (u32, u32),
    act: fn(&mut Scene) -> Result<()>,
) -> Row {
    let setup = Setup {
        strict: None,
        format: Format::Milepost,
        rate,
        seconds,
        members: 1,
        password: false,
        broker_forgets: false,
        spool: false,
        clock: false,
        slow_disk: false,
        pods: false,
        cluster: false,
        tls: false,
        settings: Vec::new(),
    };
    Row { name, description, quick: false, in_full_run: true, setup, act }
}

impl Row {
    pub(crate) fn quick(self) -> Self {
        Self { quick: true, ..self }
    }

    /// Marks a shorter version of another row, for the quick subset alone.
    pub(crate) fn only_quick(self) -> Self {
        Self { quick: true, in_full_run: false, ..self }
    }

    pub(crate) fn over_tls(mut self) -> Self {
        self.setup.tls = true;
        self
    }

    pub(crate) fn members(mut self, members: u32) -> Self {
        self.setup.members = members;
        self
    }

    pub(crate) fn in_format(mut self, format: Format) -> Self {
        self.setup.format = format;
        self
    }

    pub(crate) fn spool(mut self) -> Self {
        self.setup.spool = true;
        self
    }

    pub(crate) fn clock(mut self) -> Self {
        self.setup.clock = true;
        self
    }

    /// Gives the members fixed HTTP ports, and the addresses of their peers.
    pub(crate) fn pods(mut self) -> Self {
        self.setup.pods = true;
        self
    }

    pub(crate) fn slow_disk(mut self) -> Self {
        self.setup.slow_disk = true;
        self
    }

    /// Excludes a long row from all runs, except from runs that name the row.
    pub(crate) fn by_name_only(self) -> Self {
        Self { in_full_run: false, ..self }
    }

    pub(crate) fn with(mut self, key: &'static str, value: &'static str) -> Self {
        self.setup.settings.push((key, value));
        self
    }

    pub(crate) fn broker_forgets(mut self) -> Self {
        self.setup.broker_forgets = true;
        self
    }

    pub(crate) fn with_password(mut self) -> Self {
        self.setup.password = true;
        self
    }

    /// Uses a strict-broker with these options. Without options, strict-broker follows the standard
    /// exactly, and its window is the client's Receive Maximum.
    pub(crate) fn on_strict_broker(mut self, options: impl Into<String>) -> Self {
        self.setup.strict = Some(options.into());
        self
    }

    /// Uses a broker with the behaviour of EMQX, the settings of deploy/emqx, and these options: a
    /// session is one process that sends about 20,000 messages a second, and is killed when the
    /// session falls behind.
    pub(crate) fn on_emqx(self, options: &str) -> Self {
        const BEHAVIOUR: &str =
            "--max-inflight 32000 --session-rate 25000 --max-mailbox 100000 --resume-rate 60000";
        self.on_strict_broker(format!("{BEHAVIOUR} {options}"))
    }

    /// Uses a cluster of two nodes with this `shared_subscription_strategy`. As in EMQX, the shared
    /// subscriptions of a dead node stay as ghosts: the messages given to ghosts are lost.
    pub(crate) fn on_cluster(mut self, strategy: &str) -> Self {
        self.setup.cluster = true;
        self.on_strict_broker(format!("--max-inflight 32000 --strategy {strategy}"))
    }
}
