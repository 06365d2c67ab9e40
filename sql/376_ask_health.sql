-- Health of each driver's device and network, in the window.
--   missing         Sequence numbers (seq) that are absent between those of consecutive fixes; 0 if the device sends none.
--   restarts        Number of times that seq decreased; 0 if the device sends none.
--   late            Fixes received more than 60 s after their ts.
--   lag_…_s         Delay from ts to received_at, seconds: median, 95th percentile, maximum.
--   ahead_s         Largest time by which ts was ahead of received_at, seconds; 0 if it never was.
--   without_speed   Fixes without a speed.
--   dropped         Fixes that the roll-up left out of distances, trips and stops (sql/360). `track` has the reason for each.
CREATE OR REPLACE VIEW {database}_ask.health{on_cluster} AS
SELECT
    driver_id, fixes, missing, restarts, late, lag_p50_s, lag_p95_s, lag_max_s, ahead_s, without_speed, dropped
FROM
(
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
) AS sent
LEFT JOIN
(
    SELECT
        toString(driver_id) AS driver_id,
        sum(arrayCount(ms -> ms >= toUnixTimestamp64Milli(parseDateTime64BestEffort({from:String}, 3, {tz:String}))
            AND ms < toUnixTimestamp64Milli(parseDateTime64BestEffort({to:String}, 3, {tz:String})), dropped.ms)) AS dropped
    FROM {database}.driver_days_state{all} FINAL
    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
        AND day >= toDate32(parseDateTime64BestEffort({from:String}, 3, {tz:String}), 'UTC')
        AND day <= toDate32(parseDateTime64BestEffort({to:String}, 3, {tz:String}), 'UTC')
    GROUP BY driver_id
) AS left_out USING (driver_id)
SETTINGS join_use_nulls = 0, do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'health(driver, from, to, tz)'
