-- Trips and stops, each whole: ask `trips` and `stops`, which hide the rest. Glued again from driver_blocks_state whenever that was counted
-- again (043): the newest computed_at counts, and one that vanished gets a row that says so.
-- No PARTITION BY: all rows of a refresh are one part, so a refresh is there whole or not at all, and max(inserted_until) is true.
CREATE TABLE IF NOT EXISTS {database}.episodes_state
(
    driver_id      LowCardinality(String)         CODEC(ZSTD(1))              COMMENT 'Who',
    kind           Enum8('trip' = 1, 'stop' = 2)  CODEC(ZSTD(1))              COMMENT 'What',
    began          DateTime64(3, 'UTC')           CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Time of its first fix',
    ended          DateTime64(3, 'UTC')           CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Time of its last fix',
    metres         Float32                        CODEC(ZSTD(1))              COMMENT 'Metres driven, 0 for stops',
    fixes          UInt32                         CODEC(T64, ZSTD(1))         COMMENT 'Fixes that came after its first',
    lat_e7         Int32                          CODEC(Delta, ZSTD(1))       COMMENT 'Where it began, a stop''s middle: WGS84 degrees north times 1e7',
    lng_e7         Int32                          CODEC(Delta, ZSTD(1))       COMMENT 'Degrees east times 1e7',
    to_lat_e7      Int32                          CODEC(Delta, ZSTD(1))       COMMENT 'Where it ended, a stop''s middle: degrees north times 1e7',
    to_lng_e7      Int32                          CODEC(Delta, ZSTD(1))       COMMENT 'Degrees east times 1e7',
    speed_max      Nullable(Float32)              CODEC(ZSTD(1))              COMMENT 'The highest speed sent, in metres per second',
    block          DateTime('UTC')                CODEC(DoubleDelta, ZSTD(1)) COMMENT 'The three hours of driver_blocks_state with its first piece',
    computed_at    DateTime64(3, 'UTC')           CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When this row was glued',
    inserted_until DateTime64(3, 'UTC')           CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Fixes inserted up to here had been looked at',
    is_gone        UInt8                          CODEC(ZSTD(1))              COMMENT '1: it is not there any more'
)
ENGINE = ReplacingMergeTree(computed_at, is_gone)
PRIMARY KEY (toDate(began), driver_id)
ORDER BY (toDate(began), driver_id, kind, began)
TTL toDateTime(began) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
