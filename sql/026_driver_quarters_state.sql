-- What each driver did in each quarter of an hour. Counted again whenever a fix comes near it (027): the newest computed_at counts,
-- so that a fix that comes twice, or late, or out of order is counted once. Ask driver_quarters, which hides that.
-- No PARTITION BY: all rows of a refresh are one part, so a refresh is there whole or not at all, and max(inserted_until) is true.
CREATE TABLE IF NOT EXISTS {database}.driver_quarters_state
(
    driver_id      LowCardinality(String) CODEC(ZSTD(1))              COMMENT 'Who',
    quarter        DateTime('UTC')        CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When the quarter of an hour begins',
    fixes          UInt32                 CODEC(T64, ZSTD(1))         COMMENT 'Fixes in it',
    distance_m     Float32                CODEC(ZSTD(1))              COMMENT 'Metres driven',
    untracked_m    Float32                CODEC(ZSTD(1))              COMMENT 'Straight lines of the gaps that end in it',
    moving_s       Float32                CODEC(ZSTD(1))              COMMENT 'Seconds of trips',
    tracked_s      Float32                CODEC(ZSTD(1))              COMMENT 'Seconds of trips and stops',
    speed_sum      Float64                CODEC(ZSTD(1))              COMMENT 'Sum of the speeds sent, in metres per second',
    speed_count    UInt32                 CODEC(T64, ZSTD(1))         COMMENT 'How many fixes sent one',
    speed_max      Nullable(Float32)      CODEC(ZSTD(1))              COMMENT 'The highest, in metres per second',
    missing        UInt32                 CODEC(T64, ZSTD(1))         COMMENT 'Numbers between two neighbours'' seq',
    computed_at    DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When this row was counted',
    inserted_until DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Fixes inserted up to here had been looked at'
)
ENGINE = ReplacingMergeTree(computed_at)
PRIMARY KEY (toDate(quarter), driver_id)
ORDER BY (toDate(quarter), driver_id, quarter)
TTL quarter + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
