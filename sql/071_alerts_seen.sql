-- Acknowledgements of events: who has seen which, on the live map. The identity is the event's.
CREATE TABLE IF NOT EXISTS {database}.alerts_seen{on_cluster}
(
    driver_id  String                 COMMENT 'Driver id, as in events',
    ts         DateTime64(3, 'UTC')   COMMENT 'Time of the event''s fix',
    seq        UInt32                 COMMENT 'The device''s counter, of that fix',
    kind       LowCardinality(String) COMMENT 'Kind of the event',
    fence      String                 COMMENT 'Fence name; empty for other kinds',
    seen_by    String                 COMMENT 'Name of the viewer; empty if the map has no names',
    seen_at    DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time of the acknowledgement'
)
ENGINE = {engine:ReplacingMergeTree(seen_at)}
ORDER BY (driver_id, ts, seq, kind, fence)
TTL {retention:rollups, toDateTime(ts)}
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Events that somebody has seen, which milepost-map writes'
