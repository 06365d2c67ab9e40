-- What `milepost events` detected: a driver entered or left a fence, stayed in it too long, crossed its border outside opening hours, fell
-- silent, was heard again, became too fast, became slower again, or jumped. Once an event is delivered, its row is written again with the time
-- of delivery. The new row has the same sorting key, so it replaces the earlier row.
CREATE TABLE IF NOT EXISTS {database}.events{on_cluster}
(
    driver_id  String                   COMMENT 'Driver id',
    ts         DateTime64(3, 'UTC')     COMMENT 'Time of the fix of the event, UTC. entered, overstayed: first fix inside; left: first fix outside; off_hours: same fix as entered or left; silent: last fix before the silence; heard: first fix after it; fast, slow: first fix that was fast, or no longer fast; jump: wrong fix',
    seq        UInt32                   COMMENT 'Sequence number from the device, 0 if none',
    kind       LowCardinality(String)   COMMENT 'Kind: entered, overstayed, left, off_hours, silent, heard, fast, slow or jump',
    fence      String                   COMMENT 'Fence name for entered, overstayed, left and off_hours, and for fast and slow if the speed limit is that of a fence; otherwise empty',
    lat        Float64                  COMMENT 'Latitude of the fix, WGS84 degrees north',
    lng        Float64                  COMMENT 'Longitude of the fix, WGS84 degrees east',
    speed      Nullable(Float32)        COMMENT 'Speed, metres per second; NULL: unknown',
    known_at   DateTime64(3, 'UTC')     COMMENT 'Time the event became known, UTC, by the clock of ClickHouse. silent: end of the allowed time. overstayed: end of the allowed time, or insert of the fix that showed it, whichever is earlier. fast, jump: insert of the fix after the one at ts. entered, left, off_hours: insert of the fix that confirmed the crossing, or, without one, two minutes after the insert of the fix at ts. Otherwise: insert of the fix that showed it',
    mqtt_at    Nullable(DateTime64(3, 'UTC')) COMMENT 'Time the broker acknowledged the event, UTC; NULL: not acknowledged',
    webhook_at Nullable(DateTime64(3, 'UTC')) COMMENT 'Time the webhook accepted the event, UTC; NULL: not accepted',
    written_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time the row was written, UTC; the newest row counts'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY (driver_id, ts, seq, kind, fence)
TTL {retention:rollups, toDateTime(ts)}
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Events of drivers, written by `milepost events`. Read with FINAL'
