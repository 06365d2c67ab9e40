-- Health of each driver's device and network, in the window. missing: sequence numbers (seq) that are absent between those of consecutive fixes.
-- restarts: number of times that seq decreased. Both are 0 if the device sends no seq. late: fixes received more than 60 s after their ts.
-- ahead_s: largest time by which ts was ahead of received_at. sql/376 replaces this view.
CREATE VIEW IF NOT EXISTS {database}_ask.health{on_cluster} AS
SELECT
    driver_id, count() AS fixes,
    sumIf(seq - before_seq - 1, before_seq > 0 AND seq > before_seq) AS missing,
    countIf(seq > 0 AND seq < before_seq) AS restarts,
    countIf(lag_ms > 60000) AS late,
    quantilesExact(0.5, 0.95)(lag_ms)[1] / 1000 AS lag_p50_s, quantilesExact(0.5, 0.95)(lag_ms)[2] / 1000 AS lag_p95_s, max(lag_ms) / 1000 AS lag_max_s,
    greatest(0, -min(lag_ms)) / 1000 AS ahead_s,
    countIf(is_without_speed) AS without_speed
FROM
(
    SELECT
        driver_id, seq, speed_cms = 65535 AS is_without_speed,
        toUnixTimestamp64Milli(received_at) - toUnixTimestamp64Milli(ts) AS lag_ms,
        lagInFrame(seq) OVER (PARTITION BY driver_id ORDER BY ts, seq, lat_e7, lng_e7 ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before_seq
    FROM {database}.positions{all} FINAL
    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
        AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
        AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
)
GROUP BY driver_id
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'health(driver, from, to, tz)'
