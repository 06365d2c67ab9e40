-- What each driver did in each three hours, as pieces of trips and stops: what `trips` and `stops` are glued together of (043). Counted
-- again whenever a fix comes near (041): the newest computed_at counts, and a row is replaced whole, so a piece that vanished is gone.
-- No PARTITION BY: all rows of a refresh are one part, so a refresh is there whole or not at all, and max(inserted_until) is true.
CREATE TABLE IF NOT EXISTS {database}.driver_blocks_state
(
    driver_id      LowCardinality(String) CODEC(ZSTD(1))              COMMENT 'Who',
    block          DateTime('UTC')        CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When the three hours begin. What ends in them belongs to them',
    is_through     Bool                   CODEC(ZSTD(1))              COMMENT 'One piece, which continues and goes on',
    continues      Bool                   CODEC(ZSTD(1))              COMMENT 'The first piece is part of what the block before ends with',
    goes_on        Bool                   CODEC(ZSTD(1))              COMMENT 'The last piece is part of what the next block begins with',
    pieces         Array(Tuple(
        began_ms   Int64,
        ended_ms   Int64,
        kind       Enum8('trip' = 1, 'stop' = 2),
        metres     Float32,
        fixes      UInt32,
        lat_e7     Int32,
        lng_e7     Int32,
        to_lat_e7  Int32,
        to_lng_e7  Int32,
        speed_max  Nullable(Float32)
    ))                                    CODEC(ZSTD(1))              COMMENT 'In order: columns as in trips and stops, times in Unix milliseconds',
    computed_at    DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When this row was counted',
    inserted_until DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Fixes inserted up to here had been looked at'
)
ENGINE = ReplacingMergeTree(computed_at)
ORDER BY (driver_id, block)
TTL block + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
