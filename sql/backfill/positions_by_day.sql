-- positions (002) in the order of days, and of drivers in each: a question about a day reads that day's rows, and not its month's. ORDER
-- BY cannot be altered: `milepost backfill` makes this table beside the other one, and moves the fixes. It has what migrations up to 061
-- changed. Partitions stay months: with a day each, 1 % of late fixes would be thirty small parts an insert. ts is not in the primary key, or
-- the server would compare it there alone, behind the driver, and never toDate(ts). The index on ts leaves out the day after midnight. A
-- driver's month is a run a day: granules are small, so that it reads little beside each run. driver_id is a String: LowCardinality
-- saves a quarter of a byte a fix, and makes inserts dearer.
CREATE TABLE IF NOT EXISTS {database}.positions
(
    driver_id    String                 CODEC(ZSTD(1))                         COMMENT 'Who: the topic level matched by +',
    ts           DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1))            COMMENT 'Time of the fix',
    seq          UInt32                 CODEC(DoubleDelta, ZSTD(1))            COMMENT 'The device''s own counter, 0 if it has none',
    lat_e7       Int32                  CODEC(Delta(4), T64('bit'), ZSTD(1))   COMMENT 'WGS84 degrees north times 1e7',
    lng_e7       Int32                  CODEC(Delta(4), T64('bit'), ZSTD(1))   COMMENT 'WGS84 degrees east times 1e7',
    speed_cms    UInt16                 CODEC(T64, ZSTD(1))                    COMMENT 'Centimetres per second, 65535 unknown',
    heading_cdeg UInt16                 CODEC(Delta(2), T64('bit'), ZSTD(1))   COMMENT 'Hundredths of a degree clockwise from north, 65535 unknown',
    alt_dm       Int32                  CODEC(Delta(4), T64('bit'), ZSTD(1))   COMMENT 'Decimetres above the ellipsoid, 2147483647 unknown',
    acc_dm       UInt16                 CODEC(T64, ZSTD(1))                    COMMENT 'Horizontal accuracy in decimetres, 65535 unknown',
    received_at  DateTime64(3, 'UTC')   CODEC(Delta(8), T64('bit'), ZSTD(1))   COMMENT 'When milepost took the message from the broker',
    inserted_at  DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When ClickHouse took the row',

    lat     Float64           ALIAS lat_e7 / 1e7 COMMENT 'Degrees north',
    lng     Float64           ALIAS lng_e7 / 1e7 COMMENT 'Degrees east',
    speed   Nullable(Float32) ALIAS if(speed_cms = 65535, NULL, speed_cms / 100) COMMENT 'Metres per second',
    heading Nullable(Float32) ALIAS if(heading_cdeg = 65535, NULL, heading_cdeg / 100) COMMENT 'Degrees clockwise from north',
    alt     Nullable(Float32) ALIAS if(alt_dm = 2147483647, NULL, alt_dm / 10) COMMENT 'Metres',
    acc     Nullable(Float32) ALIAS if(acc_dm = 65535, NULL, acc_dm / 10) COMMENT 'Metres',
    attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)) COMMENT 'What the source keeps of other fields',

    INDEX ts_range ts TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(ts)
PRIMARY KEY (toDate(ts), driver_id)
ORDER BY (toDate(ts), driver_id, ts, seq, lat_e7, lng_e7)
TTL toDateTime(ts) + INTERVAL 400 DAY
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
