-- Silences longer than so many seconds. Whole ones, also where the window cuts them, as far as 12 hours outside. Who was not heard of
-- again by then has no end: `ended` is NULL, and seconds are those until the window ends, or until now.
CREATE VIEW IF NOT EXISTS {database}_ask.gaps{on_cluster} AS
WITH
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m, -- its mean diameter
    (lat, lng) -> (
        equator_m / sqrt(1 - e2 * pow(sin(radians(lat)), 2)) * cos(radians(lat)) * cos(radians(lng)),
        equator_m / sqrt(1 - e2 * pow(sin(radians(lat)), 2)) * cos(radians(lat)) * sin(radians(lng)),
        equator_m / sqrt(1 - e2 * pow(sin(radians(lat)), 2)) * (1 - e2) * sin(radians(lat))) AS on_axes,
    parseDateTime64BestEffort({from:String}, 3, {tz:String}) AS since,
    parseDateTime64BestEffort({to:String}, 3, {tz:String}) AS until
SELECT
    driver_id, toTimeZone(ts, {tz:String}) AS began, if(next_ms = 0, NULL, fromUnixTimestamp64Milli(next_ms, {tz:String})) AS ended,
    quiet_ms / 1000 AS seconds,
    if(next_ms = 0, NULL, earth_m * asin(least(1., L2Distance(
        on_axes(lat_e7 / 1e7, lng_e7 / 1e7), on_axes(next_lat_e7 / 1e7, next_lng_e7 / 1e7)) / earth_m))) AS metres,
    lat_e7 / 1e7 AS from_lat, lng_e7 / 1e7 AS from_lng, if(next_ms = 0, NULL, next_lat_e7 / 1e7) AS to_lat, if(next_ms = 0, NULL, next_lng_e7 / 1e7) AS to_lng
FROM
(
    SELECT
        driver_id, ts, lat_e7, lng_e7,
        leadInFrame(toUnixTimestamp64Milli(ts)) OVER one_by_one AS next_ms,
        leadInFrame(lat_e7) OVER one_by_one AS next_lat_e7, leadInFrame(lng_e7) OVER one_by_one AS next_lng_e7,
        if(next_ms = 0, toUnixTimestamp64Milli(least(until, now64(3))), next_ms) - toUnixTimestamp64Milli(ts) AS quiet_ms
    FROM {database}.positions{all} FINAL
    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
        AND ts >= since - INTERVAL 12 HOUR AND ts < until + INTERVAL 12 HOUR
    WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY ts, seq, lat_e7, lng_e7 ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)
)
WHERE quiet_ms > {seconds:Float64} * 1000 AND ts < until AND (next_ms = 0 OR next_ms > toUnixTimestamp64Milli(since))
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'gaps(driver, seconds, from, to, tz)'
