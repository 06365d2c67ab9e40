-- How many rows were inserted for each UTC day of each driver, duplicates included, and the highest speed among them. A day in driver_days_state
-- is up to date if its column `rows` has the same number, so no clocks are compared. A fix within two hours of midnight also counts for the
-- neighbouring day, because the computation of that day reads it (sql/360). The first version of `speeding` (sql/212) read only days whose
-- speed_max was above its limit.
CREATE TABLE IF NOT EXISTS {database}.touched{on_cluster}
(
    day        Date                                               COMMENT 'UTC day',
    driver_id  String                                             COMMENT 'Driver id',
    rows       SimpleAggregateFunction(sum, UInt64)               COMMENT 'Number of rows inserted so far for the day and the two hours before and after it, duplicates included',
    touched_at SimpleAggregateFunction(max, DateTime64(3, 'UTC')) COMMENT 'Time of the newest insert, UTC, by the clock of ClickHouse',
    speed_max  SimpleAggregateFunction(max, UInt16)               COMMENT 'Highest speed sent, centimetres per second; 0 if none',
    -- sql/304 adds this column to older tables.
    seen       SimpleAggregateFunction(max, Tuple(number UInt64, parts Array(Tuple(name String, hash String))))
        COMMENT 'Bookkeeping, only in rows of the day 2049-01-01: number of the refresh, and the data parts of positions whose rows are counted'
)
ENGINE = {engine:AggregatingMergeTree}
ORDER BY (day, driver_id)
TTL {retention:rollups, day}
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Number of rows inserted for each driver and UTC day. When the number grows, the roll-up computes the day again';

{shards}CREATE TABLE IF NOT EXISTS {database}.touched_all{on_cluster}
AS {database}.touched
ENGINE = Distributed('{cluster}', '{database}', 'touched', cityHash64(driver_id))
