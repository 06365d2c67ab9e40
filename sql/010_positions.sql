-- Every fix of every driver, sorted by UTC day and, within a day, by driver, so that a query about a day reads only the rows of that day. Rows with
-- the same sorting key are one fix: a fix that is delivered or inserted again is merged into one row, and `fixes` shows it once. Scaled integers
-- compress three times better than floats; aliases show them in plain units. The largest value of an integer type means unknown.
--
-- Partitions are months: with partitions of a day, an insert with 1 % of late fixes would write thirty small parts. ts is not in the primary key,
-- or the server would compare conditions on ts only there, behind the driver, and never with toDate(ts). The index on ts skips the day after
-- midnight if the requested time ends at midnight. The index on inserted_at finds new rows: `milepost events` asks for them every second. A
-- driver's rows of a month are one run per day; granules are small, so that a query reads few other rows at the ends of each run. driver_id
-- is a String: LowCardinality would save a quarter of a byte per fix, but make inserts more expensive.
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
