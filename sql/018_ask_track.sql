-- Where drivers were, fix by fix, with the way from the fix before.
CREATE OR REPLACE VIEW {database}_ask.track AS
WITH
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m -- its mean diameter
SELECT
    driver_id, toTimeZone(ts, {tz:String}) AS ts, seq, lat, lng, speed, heading, alt, acc,
    (ms - before_ms) / 1000 AS seconds,
    earth_m * asin(least(1, sqrt(pow(x - before_x, 2) + pow(y - before_y, 2) + pow(z - before_z, 2)) / earth_m)) AS metres
FROM
(
    SELECT
        *,
        lagInFrame(ms, 1, ms) OVER one_by_one AS before_ms,
        lagInFrame(x, 1, x) OVER one_by_one AS before_x, lagInFrame(y, 1, y) OVER one_by_one AS before_y, lagInFrame(z, 1, z) OVER one_by_one AS before_z
    FROM
    (
        SELECT
            driver_id, ts, seq, lat, lng, speed, heading, alt, acc,
            toUnixTimestamp64Milli(ts) AS ms,
            equator_m / sqrt(1 - e2 * pow(sin(radians(lat)), 2)) AS curve_m,
            curve_m * cos(radians(lat)) * cos(radians(lng)) AS x,
            curve_m * cos(radians(lat)) * sin(radians(lng)) AS y,
            curve_m * (1 - e2) * sin(radians(lat)) AS z
        FROM {database}.fixes
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
            AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
    )
    WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY ms, seq, lat, lng ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
COMMENT 'track(driver, from, to, tz)'
