-- Silences longer than so many seconds. Whole ones, also where the window cuts them, as far as 12 hours outside. Who was not heard of
-- again by then has no end: `ended` is NULL, and seconds are those until the window ends, or until now.
CREATE VIEW IF NOT EXISTS {database}_ask.gaps{on_cluster} AS
WITH
    6378137 AS equator_m,
    0.9966471893352525 AS flat, -- the polar radius of WGS84 through that of the equator
    2 * 6371008.8 AS earth_m, -- its mean diameter
    parseDateTime64BestEffort({from:String}, 3, {tz:String}) AS since,
    parseDateTime64BestEffort({to:String}, 3, {tz:String}) AS until
SELECT
    driver_id, toTimeZone(ts, {tz:String}) AS began, if(has_end, fromUnixTimestamp64Milli(next_ms, {tz:String}), NULL) AS ended,
    quiet_ms / 1000 AS seconds,
    if(has_end, earth_m * asin(least(1., sqrt(pow(next_axis_m - axis_m, 2) + pow(flat * (next_slope * next_axis_m - slope * axis_m), 2)
        + axis_m * next_axis_m * pow(2 * sin(radians((next_lng_e7 - lng_e7) / 2e7)), 2)) / earth_m)), NULL) AS metres,
    lat_e7 / 1e7 AS from_lat, lng_e7 / 1e7 AS from_lng, if(has_end, next_lat_e7 / 1e7, NULL) AS to_lat, if(has_end, next_lng_e7 / 1e7, NULL) AS to_lng
FROM
(
    SELECT
        *,
        flat * tan(radians(lat_e7 / 1e7)) AS slope, equator_m / sqrt(1 + slope * slope) AS axis_m,
        flat * tan(radians(next_lat_e7 / 1e7)) AS next_slope, equator_m / sqrt(1 + next_slope * next_slope) AS next_axis_m,
        next_ms != 0 AS has_end,
        if(has_end, next_ms, toUnixTimestamp64Milli(least(until, now64(3)))) - ms AS quiet_ms
    FROM
    (
        SELECT
            driver_id, ts, lat_e7, lng_e7, toUnixTimestamp64Milli(ts) AS ms,
            leadInFrame(ms) OVER one_by_one AS next_ms,
            leadInFrame(lat_e7) OVER one_by_one AS next_lat_e7, leadInFrame(lng_e7) OVER one_by_one AS next_lng_e7
        FROM {database}.positions{all} FINAL
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND ts >= since - INTERVAL 12 HOUR AND ts < until + INTERVAL 12 HOUR
        WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY ts, seq, lat_e7, lng_e7 ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)
    )
    WHERE quiet_ms > {seconds:Float64} * 1000 AND ts < until AND (next_ms = 0 OR next_ms > toUnixTimestamp64Milli(since))
)
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'gaps(driver, seconds, from, to, tz)'
