//! A row: how its scene is set up, and what happens on it.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lab_stack::BrokerKind;

use crate::scene::{Scene, Setup};

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) quick: bool,
    pub(crate) whole: bool,
    pub(crate) setup: Setup,
    pub(crate) act: fn(&mut Scene) -> Result<()>,
}

pub(crate) const SETTLE: Duration = Duration::from_secs(30);

pub(crate) fn row(
    name: &'static str,
    what: &'static str,
    (rate, seconds): (u32, u32),
    act: fn(&mut Scene) -> Result<()>,
) -> Row {
    let setup = Setup {
        broker: BrokerKind::Mosquitto,
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
    Row { name, what, quick: false, whole: true, setup, act }
}

impl Row {
    pub(crate) fn quick(self) -> Self {
        Self { quick: true, ..self }
    }

    /// A shorter version of another row.
    pub(crate) fn only_quick(self) -> Self {
        Self { quick: true, whole: false, ..self }
    }

    pub(crate) fn over_tls(mut self) -> Self {
        self.setup.tls = true;
        self
    }

    pub(crate) fn members(mut self, members: u32) -> Self {
        self.setup.members = members;
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

    /// Members whose HTTP ports do not change, and who know each other's.
    pub(crate) fn pods(mut self) -> Self {
        self.setup.pods = true;
        self
    }

    pub(crate) fn slow_disk(mut self) -> Self {
        self.setup.slow_disk = true;
        self
    }

    /// Neither quick nor part of the whole: takes long.
    pub(crate) fn by_name_only(self) -> Self {
        Self { whole: false, ..self }
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

    pub(crate) fn on_strict_broker(mut self, binary: &Path, announced: bool) -> Self {
        let (queue, options) = (1_000_000, Vec::new());
        self.setup.broker =
            BrokerKind::Strict { binary: binary.to_owned(), window: 32, announced, queue, options };
        self
    }

    /// On a broker that is exact in everything, and gives as many messages as we ask for.
    pub(crate) fn on_exact_broker(self, binary: &Path) -> Self {
        self.on_broker(binary, 65_535, 1_000_000, "")
    }

    /// On a broker with EMQX's manners and the settings of deploy/emqx: a session is one process that sends about 20,000
    /// messages a second, and is killed when it does not keep up.
    pub(crate) fn on_emqx(self, binary: &Path) -> Self {
        self.on_broker(
            binary,
            32_000,
            1_000_000,
            "--session-rate 25000 --max-mailbox 100000 --resume-rate 60000",
        )
    }

    /// On a cluster of two with EMQX's ghosts and this `shared_subscription_strategy`.
    pub(crate) fn on_cluster(self, binary: &Path, strategy: &str) -> Self {
        let mut row = self.on_broker(binary, 32_000, 1_000_000, &format!("--strategy {strategy}"));
        row.setup.cluster = true;
        row
    }

    /// On a strict-broker with a window that it announces, a queue beyond it, and what else it is asked for.
    pub(crate) fn on_broker(mut self, binary: &Path, window: u16, queue: u32, options: &str) -> Self {
        let options = options.split_whitespace().map(str::to_owned).collect();
        self.setup.broker =
            BrokerKind::Strict { binary: binary.to_owned(), window, announced: true, queue, options };
        self
    }

    /// On a broker that keeps to a window of our asking, queues 1,000 messages beyond it, and then drops, as EMQX
    /// does by default.
    pub(crate) fn on_shallow_broker(self, binary: &Path) -> Self {
        self.on_broker(binary, 65_535, 1_000, "")
    }
}
