-- The lag of driver_days_mv, over all shards if there are any. sql/305 replaces this view.
CREATE VIEW IF NOT EXISTS {database}.rollups{on_cluster}
(
    name      String  COMMENT 'Of the roll-up',
    pending   UInt64  COMMENT 'Days of drivers that were touched since they were computed, or never were',
    behind_s  Float64 COMMENT 'Seconds since the oldest of them was touched, by the server''s clock; 0 if there is none'
)
AS SELECT
    'driver_days' AS name, countIf(found != done) AS pending,
    if(pending = 0, 0, greatest(0, toUnixTimestamp64Milli(now64(3)) - toUnixTimestamp64Milli(minIf(touched, found != done))) / 1000) AS behind_s
FROM
(
    SELECT driver_id, day, sum(inserted) AS found, max(computed) AS done, max(at) AS touched
    FROM
    (
        SELECT driver_id, day, rows AS inserted, toUInt64(0) AS computed, touched_at AS at FROM {database}.touched{all}
        UNION ALL
        SELECT driver_id, day, 0, rows, toDateTime64(0, 3, 'UTC') FROM {database}.driver_days_state{all}
    )
    GROUP BY driver_id, day
)
WHERE found > 0
COMMENT 'How far behind the roll-ups are. system.view_refreshes says why'
