-- Where a driver was faster than so many metres per second, by the speed it sent: one row from its first such fix to its last. A slower
-- fix ends it, and 180 s without a faster one. A fix of unknown speed says nothing.
CREATE OR REPLACE VIEW {database}_ask.speeding AS
SELECT
    driver_id,
    toTimeZone(min(ts), {tz:String}) AS began, toTimeZone(max(ts), {tz:String}) AS ended,
    (max(ms) - min(ms)) / 1000 AS seconds, count() AS fixes,
    max(run.speed) AS speed_max, argMax(run.lat, run.speed) AS lat, argMax(run.lng, run.speed) AS lng
FROM
(
    SELECT
        *, sum(begins) OVER (PARTITION BY driver_id ORDER BY ms, seq, lat, lng ROWS UNBOUNDED PRECEDING) AS number
    FROM
    (
        SELECT
            driver_id, ts, seq, lat, lng, speed, toUnixTimestamp64Milli(ts) AS ms, speed > {speed:Float64} AS is_fast,
            lagInFrame(is_fast, 1, 0) OVER one_by_one AS was_fast,
            lagInFrame(ms, 1, ms) OVER one_by_one AS before_ms,
            is_fast AND (NOT was_fast OR ms - before_ms > 180000) AS begins
        FROM {database}.fixes
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
            AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
            AND speed IS NOT NULL
        WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY ms, seq, lat, lng ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
    WHERE is_fast
) AS run
GROUP BY driver_id, number
COMMENT 'speeding(driver, speed, from, to, tz)'
