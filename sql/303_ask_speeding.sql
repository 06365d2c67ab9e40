-- Where a driver was faster than so many metres per second, by the speed it sent: one row from its first such fix to its last. A slower
-- fix ends it, and 180 s without a faster one. Fixes of unknown speed are left out, and dropped ones (111). Only days
-- of drivers with such a fix are read whole; the index on the speed finds them (302).
CREATE OR REPLACE VIEW {database}_ask.speeding{on_cluster} AS
WITH
    toDate(toTimeZone(parseDateTime64BestEffort({from:String}, 3, {tz:String}), 'UTC')) AS first_day,
    toDate(toTimeZone(parseDateTime64BestEffort({to:String}, 3, {tz:String}), 'UTC')) AS last_day
SELECT
    driver_id,
    fromUnixTimestamp64Milli(min(ms), {tz:String}) AS began, fromUnixTimestamp64Milli(max(ms), {tz:String}) AS ended,
    (max(ms) - min(ms)) / 1000 AS seconds, count() AS fixes,
    toFloat32(max(speed_cms) / 100) AS speed_max, argMax(lat_e7, speed_cms) / 1e7 AS lat, argMax(lng_e7, speed_cms) / 1e7 AS lng
FROM
(
    SELECT
        *, sum(begins) OVER (PARTITION BY driver_id ORDER BY ms, seq, lat_e7, lng_e7 ROWS UNBOUNDED PRECEDING) AS number
    FROM
    (
        SELECT
            driver_id, seq, lat_e7, lng_e7, speed_cms, toUnixTimestamp64Milli(ts) AS ms, speed_cms / 100 > {speed:Float64} AS is_fast,
            ms - lagInFrame(is_fast * ms) OVER one_by_one > 180000 AS begins -- a slower one before it is 0, which is long ago
        FROM {database}.positions{all} FINAL
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
            AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
            AND speed_cms != 65535 AND (acc_dm = 65535 OR acc_dm <= 2000)
            AND indexHint((toDate(ts), driver_id) GLOBAL IN -- which granules to read; other rows of theirs do no harm
            (
                SELECT DISTINCT toDate(ts), driver_id
                FROM {database}.positions{all}
                WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                    AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
                    AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
                    AND speed_cms % 65535 > {speed:Float64} * 100 - 1
            ))
            AND (driver_id, ms, seq, lat_e7, lng_e7) GLOBAL NOT IN
            (
                SELECT toString(driver_id), dropped.ms, dropped.seq, dropped.lat_e7, dropped.lng_e7
                FROM {database}.driver_days_state{all} FINAL
                ARRAY JOIN dropped
                WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id)) AND day >= first_day AND day <= last_day
            )
        WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY ms, seq, lat_e7, lng_e7 ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
    WHERE is_fast
)
GROUP BY driver_id, number
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'speeding(driver, speed, from, to, tz)'
