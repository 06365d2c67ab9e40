-- Rejected points and messages, each with its reason. A row stands for `count` rejects: one or, above the flood limit, several. Rows expire by
-- inserted_at, which the server's clock sets. With received_at, rows from a milepost whose clock is far behind would expire at once.
CREATE TABLE IF NOT EXISTS {database}.rejects{on_cluster}
(
    received_at   DateTime64(3, 'UTC')   CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Time milepost received the message, UTC, by its own clock',
    topic         String                 CODEC(ZSTD(1)) COMMENT 'First 1,024 bytes of the MQTT topic',
    driver_id     String                 CODEC(ZSTD(1)) COMMENT 'Driver id; empty if neither the topic nor the payload names a driver',
    reason        LowCardinality(String)                COMMENT 'Reason: the rule of the input contract that was broken, such as bad_ts',
    detail        String                 CODEC(ZSTD(1)) COMMENT 'Description of the error',
    payload       String                 CODEC(ZSTD(3)) COMMENT 'Rejected point as sent, or the whole message if no single point is at fault; at most its first 64 KiB',
    payload_bytes UInt64                 CODEC(T64, ZSTD(1)) COMMENT 'Length of the payload before it was cut, in bytes',
    count         UInt64                 CODEC(T64, ZSTD(1)) COMMENT 'Number of rejects that this row stands for; more than 1 if rejects came faster than the flood limit and were merged into one row',
    inserted_at   DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'Time of the insert, UTC, by the clock of ClickHouse'
)
ENGINE = {engine:MergeTree}
PARTITION BY toYYYYMM(received_at)
ORDER BY (reason, received_at)
TTL {retention:rejects, toDateTime(inserted_at)}
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Rejected points and messages, each with its reason';

{shards}CREATE TABLE IF NOT EXISTS {database}.rejects_all{on_cluster}
AS {database}.rejects
ENGINE = Distributed('{cluster}', '{database}', 'rejects', cityHash64(topic))
