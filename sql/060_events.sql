-- What `milepost events` found: who entered and left a fence, fell silent and was heard again, was too fast and slower again, or jumped.
-- A row again, with the time of its delivery, takes the place of the one before: the identity is the content.
CREATE TABLE IF NOT EXISTS {database}.events{on_cluster}
(
    driver_id  String                   COMMENT 'Who',
    ts         DateTime64(3, 'UTC')     COMMENT 'Time of the fix: the first inside or outside (of overstayed and off_hours, too), the first that is fast or slow, the last before a silence, the one that jumped',
    seq        UInt32                   COMMENT 'The device''s counter, of that fix',
    kind       LowCardinality(String)   COMMENT 'entered, overstayed, left, off_hours, silent, heard, fast, slow or jump',
    fence      String                   COMMENT 'Fence of entered, overstayed, left and off_hours, and of fast and slow by a fence''s limit; else empty',
    lat        Float64                  COMMENT 'WGS84 degrees north, of that fix',
    lng        Float64                  COMMENT 'WGS84 degrees east',
    speed      Nullable(Float32)        COMMENT 'Metres per second, NULL if unknown',
    known_at   DateTime64(3, 'UTC')     COMMENT 'When ClickHouse had the fix that shows it; of a silence, when it was long enough',
    mqtt_at    Nullable(DateTime64(3, 'UTC')) COMMENT 'When the broker acknowledged it',
    webhook_at Nullable(DateTime64(3, 'UTC')) COMMENT 'When the webhook took it',
    written_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When this row was written: the newest counts'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY (driver_id, ts, seq, kind, fence)
TTL {retention:rollups, toDateTime(ts)}
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Events, which milepost events writes. Read them with FINAL'
