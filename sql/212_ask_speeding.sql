-- Periods in which a driver was faster than the given speed, in metres per second, by the speeds that the device sent: one row from the first
-- fast fix to the last one. A slower fix ends the period, and so do 180 s without a fast fix. Fixes of unknown speed and dropped fixes are left
-- out. Only days with a fast fix are read (touched.speed_max, sql/100). sql/374 replaces this view.
CREATE VIEW IF NOT EXISTS {database}_ask.speeding{on_cluster} AS
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
            ms - lagInFrame(is_fast * ms) OVER one_by_one > 180000 AS begins -- after a slower fix, is_fast * ms is 0, which is long ago
        FROM {database}.positions{all} FINAL
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
            AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
            AND speed_cms != 65535 AND (acc_dm = 65535 OR acc_dm <= 2000)
            AND indexHint((toDate(ts), driver_id) GLOBAL IN -- selects the granules to read, and filters no row: is_fast tests each row
            (
                SELECT day, driver_id
                FROM {database}.touched{all}
                WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                    AND day >= first_day AND day <= last_day AND speed_max / 100 > {speed:Float64}
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
