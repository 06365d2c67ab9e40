-- Every fix of every driver, in the order of days and of drivers in each day: a question about a day reads the rows of that day. Identity
-- is the content (ORDER BY), so a fix that is delivered or inserted again collapses, and `fixes` shows each once. Scaled integers
-- compress three times better than floats; people read the aliases. The largest value of an integer type means unknown.
--
-- Partitions are months: with days, 1 % of late fixes would be thirty small parts an insert. ts is not in the primary key, or the server
-- would compare it there, behind the driver, and never toDate(ts); the index on ts leaves out the day after midnight, and the one on inserted_at
-- leaves what is new: events asks for that every second. A driver's month is
-- a run of rows each day: granules are small, so that it reads little beside each run. driver_id is a String: LowCardinality saves a
-- quarter of a byte a fix, and makes inserts dearer.
CREATE TABLE IF NOT EXISTS {database}.positions{on_cluster}
(
{stored},

    INDEX ts_range ts TYPE minmax GRANULARITY 1,
    INDEX inserted_range inserted_at TYPE minmax GRANULARITY 1,
    INDEX speed_range speed_cms % 65535 TYPE minmax GRANULARITY 1 -- 302 adds it to older tables
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
