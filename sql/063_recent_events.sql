-- The events of the last two days in the order in which they were known, so that `milepost events` reads the last minutes without the history.
CREATE TABLE IF NOT EXISTS {database}.recent_events{on_cluster}
(
    known_at   DateTime64(3, 'UTC')     COMMENT 'When ClickHouse had the fix that shows it; of a silence, when it was long enough',
    driver_id  String                   COMMENT 'Who',
    ts         DateTime64(3, 'UTC')     COMMENT 'Time of the fix',
    seq        UInt32                   COMMENT 'The device''s counter, of that fix',
    kind       LowCardinality(String)   COMMENT 'entered, left, silent, heard, fast, slow or jump',
    fence      String                   COMMENT 'Which, of entered and left',
    lat        Float64                  COMMENT 'WGS84 degrees north, of that fix',
    lng        Float64                  COMMENT 'WGS84 degrees east',
    speed      Nullable(Float32)        COMMENT 'Metres per second, NULL if unknown',
    mqtt_at    Nullable(DateTime64(3, 'UTC')) COMMENT 'When the broker acknowledged it',
    webhook_at Nullable(DateTime64(3, 'UTC')) COMMENT 'When the webhook took it',
    written_at DateTime64(3, 'UTC')     COMMENT 'When the row of events was written: the newest counts'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY (known_at, driver_id, ts, seq, kind, fence)
TTL toDateTime(written_at) + INTERVAL 2 DAY
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'The events of the last two days by known_at, which events feeds. Read it with FINAL'
