-- What each driver's device and network are like. missing: numbers between two neighbours' seq, restarts: it fell (both only
-- where the device counts). late: received more than 60 s after its ts. ahead_s: how far the device's clock was ahead at worst.
CREATE OR REPLACE VIEW {database}_ask.health AS
SELECT
    driver_id, count() AS fixes,
    sum(if(seq > 0 AND before_seq > 0 AND seq > before_seq, seq - before_seq - 1, 0)) AS missing,
    countIf(seq > 0 AND seq < before_seq) AS restarts,
    countIf(lag_s > 60) AS late,
    quantileExact(0.5)(lag_s) AS lag_p50_s, quantileExact(0.95)(lag_s) AS lag_p95_s, max(lag_s) AS lag_max_s,
    greatest(0, -min(lag_s)) AS ahead_s,
    countIf(speed IS NULL) AS without_speed
FROM
(
    SELECT
        driver_id, seq, speed,
        (toUnixTimestamp64Milli(received_at) - toUnixTimestamp64Milli(ts)) / 1000 AS lag_s,
        lagInFrame(seq, 1, 0) OVER (PARTITION BY driver_id ORDER BY ts, seq, lat, lng ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before_seq
    FROM {database}.fixes
    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
        AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
        AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
)
GROUP BY driver_id
COMMENT 'health(driver, from, to, tz)'
