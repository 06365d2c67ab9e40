-- What was refused, and why. A row stands for `count` refusals: 1, or more above the flood limit.
CREATE TABLE IF NOT EXISTS {database}.rejects
(
    received_at   DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When milepost took the message from the broker',
    topic         String                 CODEC(ZSTD(1)) COMMENT 'Its first 1,024 bytes',
    driver_id     String                 CODEC(ZSTD(1)) COMMENT 'Who, if the topic names a driver',
    reason        LowCardinality(String)                COMMENT 'Which rule of the input contract',
    detail        String                 CODEC(ZSTD(1)) COMMENT 'What was wrong, in words',
    payload       String                 CODEC(ZSTD(3)) COMMENT 'The broken point, else the message (its first 64 KiB)',
    payload_bytes UInt64                 CODEC(T64, ZSTD(1)) COMMENT 'How long it was before the cut',
    count         UInt64                 CODEC(T64, ZSTD(1)) COMMENT 'How many refusals this row stands for'
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(received_at)
ORDER BY (reason, received_at)
TTL toDateTime(received_at) + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
