-- The events written in the last two days, sorted by known_at, so that `milepost events` can read the last minutes without the whole history.
CREATE TABLE IF NOT EXISTS {database}.recent_events{on_cluster}
(
    known_at   DateTime64(3, 'UTC')     COMMENT 'Time the event became known, UTC, by the clock of ClickHouse: the insert of the fix that showed it (for fast and jump, the fix after the one at ts); for silent, and for overstayed if that is earlier, the end of the allowed time',
    driver_id  String                   COMMENT 'Driver id',
    ts         DateTime64(3, 'UTC')     COMMENT 'Time of the event''s fix, UTC',
    seq        UInt32                   COMMENT 'Sequence number from the device, 0 if none',
    kind       LowCardinality(String)   COMMENT 'Kind: entered, overstayed, left, off_hours, silent, heard, fast, slow or jump',
    fence      String                   COMMENT 'Fence name, as in events',
    lat        Float64                  COMMENT 'Latitude of the fix, WGS84 degrees north',
    lng        Float64                  COMMENT 'Longitude of the fix, WGS84 degrees east',
    speed      Nullable(Float32)        COMMENT 'Speed, metres per second; NULL: unknown',
    mqtt_at    Nullable(DateTime64(3, 'UTC')) COMMENT 'Time the broker acknowledged the event, UTC; NULL: not acknowledged',
    webhook_at Nullable(DateTime64(3, 'UTC')) COMMENT 'Time the webhook accepted the event, UTC; NULL: not accepted',
    written_at DateTime64(3, 'UTC')     COMMENT 'Time the row of events was written, UTC; the newest row counts'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY (known_at, driver_id, ts, seq, kind, fence)
TTL toDateTime(written_at) + INTERVAL 2 DAY
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Events written in the last two days, sorted by known_at, filled from the table events. Read with FINAL'
