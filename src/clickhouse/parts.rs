//! How busy the server is with merging what was inserted.

use super::client::{ClickHouse, Error};

impl ClickHouse {
    /// The most active parts that a partition of ours has, on the host that answers.
    pub(crate) async fn parts_of_a_partition(&self) -> Result<u64, Error> {
        let sql = format!(
            "SELECT max(parts) FROM (SELECT count() AS parts FROM system.parts WHERE active AND database = '{}' \
             GROUP BY table, partition_id)",
            self.database
        );
        self.number("counting parts", &sql).await
    }
}
