-- The newest event of each driver, state and fence. `milepost events` starts from these rows, so its start does not take longer as the history
-- grows. `version`, the version column of ReplacingMergeTree, is highest for the newest event. Its bits, from the highest: 48 for known_at, 48
-- for ts, 32 for seq, 1 that is set for overstayed, because it follows the entered of the same fix, and 48 for written_at. So an event that is
-- written again with the time of its delivery replaces its earlier row. Signed numbers are shifted to begin at 0.
CREATE TABLE IF NOT EXISTS {database}.event_states{on_cluster}
(
    driver_id  String                   COMMENT 'Driver id',
    state      LowCardinality(String)   COMMENT 'State: fence, contact or speed',
    fence      String                   COMMENT 'Fence name; empty for contact, and for speed if the limit is events.faster_than',
    kind       LowCardinality(String)   COMMENT 'Kind of the newest event: entered, overstayed or left; silent or heard; fast or slow',
    ts         DateTime64(3, 'UTC')     COMMENT 'Time of the fix of the newest event, UTC',
    seq        UInt32                   COMMENT 'Sequence number from the device, 0 if none',
    lat        Float64                  COMMENT 'Latitude of the fix, WGS84 degrees north',
    lng        Float64                  COMMENT 'Longitude of the fix, WGS84 degrees east',
    speed      Nullable(Float32)        COMMENT 'Speed, metres per second; NULL: unknown',
    known_at   DateTime64(3, 'UTC')     COMMENT 'Time the event became known, UTC, by the clock of ClickHouse: the insert of the fix that showed it (for fast, the fix after the one at ts); for silent, and for overstayed if that is earlier, the end of the allowed time',
    mqtt_at    Nullable(DateTime64(3, 'UTC')) COMMENT 'Time the broker acknowledged the event, UTC; NULL: not acknowledged',
    webhook_at Nullable(DateTime64(3, 'UTC')) COMMENT 'Time the webhook accepted the event, UTC; NULL: not accepted',
    written_at DateTime64(3, 'UTC')     COMMENT 'Time the row of events was written, UTC',
    version    UInt256 MATERIALIZED bitOr(bitOr(
            bitShiftLeft(toUInt256(toUnixTimestamp64Milli(known_at) + 140737488355328), 129),
            bitShiftLeft(toUInt256(toUnixTimestamp64Milli(ts) + 140737488355328), 81)), bitOr(
            bitShiftLeft(toUInt256(seq) * 2 + (kind = 'overstayed'), 48), toUInt256(toUnixTimestamp64Milli(written_at) + 140737488355328)))
        CODEC(ZSTD(1)) COMMENT 'Version column of ReplacingMergeTree, highest for the newest event: made of known_at, ts, seq, whether the kind is overstayed, and written_at'
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY (driver_id, state, fence)
TTL {retention:rollups, toDateTime(ts)}
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Newest event of each driver, state and fence, filled from the table events. Read with FINAL'
