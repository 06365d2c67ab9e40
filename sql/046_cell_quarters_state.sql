-- Who was in which cell in which quarter of an hour: so that a question about a place need not look at every fix. Counted again whenever a
-- fix comes into a driver's quarter (047): the newest computed_at counts, so that a fix that comes twice is counted once.
-- No PARTITION BY: all rows of a refresh are one part, so a refresh is there whole or not at all, and max(inserted_until) is true.
CREATE TABLE IF NOT EXISTS {database}.cell_quarters_state
(
    quarter        DateTime('UTC')        CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When the quarter of an hour begins',
    cell           UInt64                 CODEC(Delta, ZSTD(1))       COMMENT 'H3, resolution 8',
    driver_id      LowCardinality(String) CODEC(ZSTD(1))              COMMENT 'Who',
    fixes          UInt32                 CODEC(T64, ZSTD(1))         COMMENT 'Fixes there and then',
    computed_at    DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When this row was counted',
    inserted_until DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Fixes inserted up to here had been looked at'
)
ENGINE = ReplacingMergeTree(computed_at)
PRIMARY KEY (toDate(quarter), cell)
ORDER BY (toDate(quarter), cell, quarter, driver_id)
TTL quarter + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
