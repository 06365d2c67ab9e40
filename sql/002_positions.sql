-- Every fix of every driver. Identity is the content (ORDER BY), so a fix that is delivered or inserted
-- again collapses, and `fixes` shows each once. Scaled integers compress three times better than floats, and the
-- aliases below them are what people read. The largest value of a type means unknown.
CREATE TABLE IF NOT EXISTS {database}.positions
(
    driver_id    String               CODEC(ZSTD(1))              COMMENT 'Who: the topic level matched by +',
    ts           DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Time of the fix',
    seq          UInt32               CODEC(DoubleDelta, ZSTD(1)) COMMENT 'The device''s own counter, 0 if it has none',
    lat_e7       Int32                CODEC(DoubleDelta, ZSTD(1)) COMMENT 'WGS84 degrees north times 1e7',
    lng_e7       Int32                CODEC(DoubleDelta, ZSTD(1)) COMMENT 'WGS84 degrees east times 1e7',
    speed_cms    UInt16               CODEC(T64, ZSTD(1))         COMMENT 'Centimetres per second, 65535 unknown',
    heading_cdeg UInt16               CODEC(Delta, ZSTD(1))       COMMENT 'Hundredths of a degree clockwise from north, 65535 unknown',
    alt_dm       Int32                CODEC(Delta, ZSTD(1))       COMMENT 'Decimetres above the ellipsoid, 2147483647 unknown',
    acc_dm       UInt16               CODEC(T64, ZSTD(1))         COMMENT 'Horizontal accuracy in decimetres, 65535 unknown',
    received_at  DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When milepost took the message from the broker',
    inserted_at  DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When ClickHouse took the row',

    lat     Float64           ALIAS lat_e7 / 1e7 COMMENT 'Degrees north',
    lng     Float64           ALIAS lng_e7 / 1e7 COMMENT 'Degrees east',
    speed   Nullable(Float32) ALIAS if(speed_cms = 65535, NULL, speed_cms / 100) COMMENT 'Metres per second',
    heading Nullable(Float32) ALIAS if(heading_cdeg = 65535, NULL, heading_cdeg / 100) COMMENT 'Degrees clockwise from north',
    alt     Nullable(Float32) ALIAS if(alt_dm = 2147483647, NULL, alt_dm / 10) COMMENT 'Metres',
    acc     Nullable(Float32) ALIAS if(acc_dm = 65535, NULL, acc_dm / 10) COMMENT 'Metres'
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(ts)
PRIMARY KEY (driver_id, ts)
ORDER BY (driver_id, ts, seq, lat_e7, lng_e7)
TTL toDateTime(ts) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
