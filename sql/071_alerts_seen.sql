-- Acknowledgements of events on the live map: one row per event. Its first five columns identify the event.
CREATE TABLE IF NOT EXISTS {database}.alerts_seen{on_cluster}
(
    driver_id  String                 COMMENT 'Driver id, as in events',
    ts         DateTime64(3, 'UTC')   COMMENT 'Time of the event''s fix, UTC',
    seq        UInt32                 COMMENT 'Sequence number from the device, 0 if none',
    kind       LowCardinality(String) COMMENT 'Kind of the event',
    fence      String                 COMMENT 'Fence name, as in events',
    seen_by    String                 COMMENT 'Name of the viewer; empty if the map does not know it',
    seen_at    DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time of the acknowledgement, UTC'
)
ENGINE = {engine:ReplacingMergeTree(seen_at)}
ORDER BY (driver_id, ts, seq, kind, fence)
TTL {retention:rollups, toDateTime(ts)}
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Events that viewers of the live map acknowledged, written by milepost-map'
