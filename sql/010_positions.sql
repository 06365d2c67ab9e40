-- Every fix of every driver, sorted by UTC day and, within a day, by driver, so that a query about a day reads only the rows of that day. Rows
-- with the same sorting key are one fix: ClickHouse merges them into one row, and `fixes` shows one. Scaled integers compress three times better
-- than floats, and aliases show them in plain units. An unknown value is the largest value of its integer type; an unknown seq is 0.
--
-- Partitions are months: with a partition for each day, an insert in which 1 % of the fixes are late would write thirty small parts. ts is not
-- in the primary key: ClickHouse would apply a condition on ts to that column only, which would come after driver_id, and not to toDate(ts). A
-- condition `ts < midnight` also selects the day that begins at that midnight, and the index on ts skips that day. The index on inserted_at
-- finds the new rows, which `milepost events` queries every second. Within a month, the rows of a driver and day are next to each other.
-- Granules are small, so that a query reads few rows of neighbouring drivers. driver_id is a String: LowCardinality would save a quarter of a
-- byte per fix, but make inserts more expensive.
CREATE TABLE IF NOT EXISTS {database}.positions{on_cluster}
(
{stored},

    INDEX ts_range ts TYPE minmax GRANULARITY 1,
    INDEX inserted_range inserted_at TYPE minmax GRANULARITY 1,
    INDEX speed_range speed_cms % 65535 TYPE minmax GRANULARITY 1 -- sql/302 adds this index to older tables
)
ENGINE = {engine:ReplacingMergeTree}
PARTITION BY toYYYYMM(ts)
PRIMARY KEY (toDate(ts), driver_id)
ORDER BY (toDate(ts), driver_id, ts, seq, lat_e7, lng_e7)
TTL {retention:positions, toDateTime(ts)}
SETTINGS {policy}index_granularity = 1024, {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Every inserted fix. A fix that arrived twice is stored twice until ClickHouse merges the two rows. Query fixes instead';

{shards}CREATE TABLE IF NOT EXISTS {database}.positions_all{on_cluster}
AS {database}.positions
ENGINE = Distributed('{cluster}', '{database}', 'positions', cityHash64(driver_id))
