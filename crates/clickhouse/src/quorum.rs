//! The number of replicas that must have an insert before the server confirms it.
//!
//! Without a quorum, a replica answers once it has the rows itself. If that replica then dies, the
//! other replicas may find the insert's token in Keeper but not have its rows. They answer a retry
//! with a success, and store nothing. With a quorum of two or more, they answer a retry with
//! "unknown status" until they have the rows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use milepost_config as config;
use milepost_config::{InsertQuorum, Replication};

/// The smallest number of replicas of which two are not a majority.
const MIN_REPLICAS_FOR_AUTO_QUORUM: u64 = 4;

/// The quorum that inserts require.
pub(super) struct Quorum {
    /// The configured quorum; `None` if the tables are not replicated.
    configured: Option<InsertQuorum>,
    /// Number of replicas as last read; 0 before the first answer.
    replicas: AtomicU64,
}

impl Quorum {
    pub(super) fn new(config: &config::ClickHouse) -> Self {
        let is_replicated = config.replication != Replication::None;
        Self {
            configured: is_replicated.then_some(config.insert_quorum),
            replicas: AtomicU64::new(0),
        }
    }

    /// Returns whether the quorum depends on the number of replicas.
    pub(super) fn depends_on_replicas(&self) -> bool {
        self.configured == Some(InsertQuorum::Auto)
    }

    /// Stores the number of replicas. A server without its Keeper reports 0, which is ignored.
    pub(super) fn set_replicas(&self, replicas: u64) {
        if replicas > 0 {
            self.replicas.store(replicas, Ordering::Relaxed);
        }
    }

    /// Returns the quorum settings of an insert with this timeout. Returns none on a single server,
    /// or if `clickhouse.insert_quorum` is 0.
    pub(super) fn settings(&self, timeout: Duration) -> Vec<(&'static str, String)> {
        let Some(quorum) = self.quorum() else { return Vec::new() };
        // The server must report an unknown status before the client's own timeout.
        let wait = timeout / 2;
        vec![
            ("insert_quorum", quorum),
            // Otherwise the server rejects an insert while another one waits for its quorum.
            ("insert_quorum_parallel", "1".to_owned()),
            ("insert_quorum_timeout", wait.as_millis().to_string()),
        ]
    }

    /// Returns the value of the server's setting `insert_quorum`; `None` if no quorum is required.
    /// With `clickhouse.insert_quorum = "auto"` and at most three replicas, the value is 2. The
    /// server's own `auto` would accept a single replica if there is only one.
    fn quorum(&self) -> Option<String> {
        match self.configured? {
            InsertQuorum::Replicas(0) => None,
            InsertQuorum::Replicas(number) => Some(number.to_string()),
            InsertQuorum::Auto
                if self.replicas.load(Ordering::Relaxed) >= MIN_REPLICAS_FOR_AUTO_QUORUM =>
            {
                Some("auto".to_owned())
            }
            InsertQuorum::Auto => Some("2".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_config::Config;

    fn quorum(toml: &str) -> Quorum {
        Quorum::new(&Config::parse(&format!("[clickhouse]\n{toml}")).unwrap().clickhouse)
    }

    #[test]
    fn single_server_or_quorum_0_gets_no_quorum_settings() {
        let single = quorum("");
        single.set_replicas(5);
        assert_eq!(single.settings(Duration::from_secs(60)), []);
        assert!(!single.depends_on_replicas());
        assert_eq!(
            quorum("replication = 'macros'\ninsert_quorum = 0").settings(Duration::from_secs(60)),
            []
        );
    }

    #[test]
    fn quorum_is_a_majority_and_at_least_two() {
        for replication in ["macros", "managed"] {
            let auto = quorum(&format!("replication = '{replication}'"));
            let sent = || auto.settings(Duration::from_secs(60));
            assert_eq!(
                sent(),
                [
                    ("insert_quorum", "2".to_owned()),
                    ("insert_quorum_parallel", "1".to_owned()),
                    ("insert_quorum_timeout", "30000".to_owned()),
                ]
            );
            for (replicas, expected) in
                [(1, "2"), (2, "2"), (3, "2"), (4, "auto"), (0, "auto"), (5, "auto"), (3, "2")]
            {
                auto.set_replicas(replicas);
                assert_eq!(sent()[0].1, expected, "{replicas} replicas");
            }
        }
        let three = quorum("replication = 'macros'\ninsert_quorum = 3");
        assert_eq!(three.settings(Duration::from_secs(1))[0].1, "3");
        assert!(!three.depends_on_replicas());
    }
}
