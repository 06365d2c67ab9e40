-- The lag of driver_days_mv, over all shards if there are any, as in sql/305. A day waits only if more rows were counted for it than were computed.
-- While the rows of a day in `touched` expire, one part after the other, fewer remain, and the day does not wait.
CREATE OR REPLACE VIEW {database}.rollups{on_cluster}
(
    name      String  COMMENT 'Name of the roll-up',
    pending   UInt64  COMMENT 'Number of days of drivers that wait to be computed',
    behind_s  Float64 COMMENT 'Lag, seconds by the clock of ClickHouse: time since the newest insert into the day that waits longest, 0 if none waits; if rows were last counted more than ten minutes ago, at least the time since then'
)
AS SELECT name, pending, greatest(if(pending = 0, 0, now_s - waiting_s), if(recorded_s > 0 AND now_s - recorded_s > 600, now_s - recorded_s, 0)) AS behind_s
FROM
(
    SELECT
        'driver_days' AS name, countIf(found > done) AS pending, toUnixTimestamp64Milli(now64(3)) / 1000 AS now_s,
        least(now_s, toUnixTimestamp64Milli(minIf(touched, found > done)) / 1000) AS waiting_s,
        toUnixTimestamp64Milli(maxIf(touched, day = '2049-01-01')) / 1000 AS recorded_s
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
)
COMMENT 'Lag of the roll-ups. system.view_refreshes shows the cause'
