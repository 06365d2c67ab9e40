-- The newest event of each driver, state and fence, so that `milepost events` starts with as many rows as there are states, however long
-- the history of `events` is. `version` orders events: 48 bits of known_at, 48 of ts, 32 of seq, 48 of written_at, from the highest; so a row
-- that is written again with its time of delivery replaces the one before. Signed numbers are moved up to begin at 0.
CREATE TABLE IF NOT EXISTS {database}.event_states{on_cluster}
(
    driver_id  String                   COMMENT 'Who',
    state      LowCardinality(String)   COMMENT 'fence, contact or speed',
    fence      String                   COMMENT 'Which, of the state fence; else empty',
    kind       LowCardinality(String)   COMMENT 'The newest event: entered or left, silent or heard, fast or slow',
    ts         DateTime64(3, 'UTC')     COMMENT 'Time of its fix',
    seq        UInt32                   COMMENT 'The device''s counter, of that fix',
    lat        Float64                  COMMENT 'WGS84 degrees north, of that fix',
    lng        Float64                  COMMENT 'WGS84 degrees east',
    speed      Nullable(Float32)        COMMENT 'Metres per second, NULL if unknown',
    known_at   DateTime64(3, 'UTC')     COMMENT 'When ClickHouse had the fix that shows it; of a silence, when it was long enough',
    mqtt_at    Nullable(DateTime64(3, 'UTC')) COMMENT 'When the broker acknowledged it',
    webhook_at Nullable(DateTime64(3, 'UTC')) COMMENT 'When the webhook took it',
    written_at DateTime64(3, 'UTC')     COMMENT 'When the row of events was written',
    version    UInt256 MATERIALIZED bitOr(bitOr(
            bitShiftLeft(toUInt256(toUnixTimestamp64Milli(known_at) + 140737488355328), 128),
            bitShiftLeft(toUInt256(toUnixTimestamp64Milli(ts) + 140737488355328), 80)), bitOr(
            bitShiftLeft(toUInt256(seq), 48), toUInt256(toUnixTimestamp64Milli(written_at) + 140737488355328)))
        CODEC(ZSTD(1)) COMMENT 'The highest is the newest: known_at, ts, seq, written_at'
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY (driver_id, state, fence)
TTL {retention:rollups, toDateTime(ts)}
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'The newest event of each state, which events feeds. Read it with FINAL'
