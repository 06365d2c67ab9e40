-- What was refused, and why. A row stands for `count` refusals: 1, or more above the flood limit. Rows expire by inserted_at, the
-- server's clock: with received_at, a milepost whose clock was a month behind would write rows that are gone at once.
CREATE TABLE IF NOT EXISTS {database}.rejects{on_cluster}
(
    received_at   DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When milepost took the message from the broker',
    topic         String                 CODEC(ZSTD(1)) COMMENT 'Its first 1,024 bytes',
    driver_id     String                 CODEC(ZSTD(1)) COMMENT 'Who, if the topic names a driver',
    reason        LowCardinality(String)                COMMENT 'Which rule of the input contract',
    detail        String                 CODEC(ZSTD(1)) COMMENT 'What was wrong, in words',
    payload       String                 CODEC(ZSTD(3)) COMMENT 'The broken point, else the message (its first 64 KiB)',
    payload_bytes UInt64                 CODEC(T64, ZSTD(1)) COMMENT 'How long it was before the cut',
    count         UInt64                 CODEC(T64, ZSTD(1)) COMMENT 'How many refusals this row stands for',
    inserted_at   DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When ClickHouse took the row'
)
ENGINE = {engine:MergeTree}
PARTITION BY toYYYYMM(received_at)
ORDER BY (reason, received_at)
TTL {retention:rejects, toDateTime(inserted_at)}
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'What was refused, and why';

{shards}CREATE TABLE IF NOT EXISTS {database}.rejects_all{on_cluster}
AS {database}.rejects
ENGINE = Distributed('{cluster}', '{database}', 'rejects', cityHash64(topic))
