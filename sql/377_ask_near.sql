-- The drivers who had a fix within the given distance of a point, in metres. Only fixes count, not the lines between them. Dropped fixes are
-- left out (sql/360). A band of latitudes and a band of longitudes around the point preselect fixes. Exact distances are computed only for these.
-- The band of longitudes may cross 180 degrees. If a pole is within the distance, it is all longitudes.
CREATE OR REPLACE VIEW {database}_ask.near{on_cluster} AS
WITH
    6378137 AS equator_m, -- equatorial radius of WGS84
    0.9966471893352525 AS axis_ratio, -- polar radius of WGS84, divided by the equatorial radius
    2 * 6371008.8 AS earth_diameter_m, -- mean diameter of the earth
    {metres:Float64} / 6335439 AS angle, -- 6335439 m is the ellipsoid's smallest radius of curvature, so the angle is never too small
    degrees(angle) + 1e-7 AS lat_band,
    sin(angle) / greatest(cos(radians({lat:Float64})), 1e-12) AS sin_lng_band,
    if(abs({lat:Float64}) + lat_band >= 90 OR sin_lng_band >= 1, 180, degrees(asin(least(1, sin_lng_band))) * 1.01 + 1e-7) AS lng_band,
    axis_ratio * tan(radians({lat:Float64})) AS point_slope,
    equator_m / sqrt(1 + point_slope * point_slope) AS point_axis_m
SELECT
    driver_id,
    toTimeZone(min(ts), {tz:String}) AS first, toTimeZone(max(ts), {tz:String}) AS last, count() AS fixes,
    min(distance_m) AS nearest_m, toTimeZone(argMin(ts, (distance_m, ts)), {tz:String}) AS nearest
FROM
(
    SELECT
        driver_id, ts, seq, lat_e7, lng_e7,
        earth_diameter_m * asin(least(1, sqrt(pow(axis_m - point_axis_m, 2) + pow(axis_ratio * (slope * axis_m - point_slope * point_axis_m), 2)
            + axis_m * point_axis_m * pow(2 * sin(radians((lng - {lng:Float64}) / 2)), 2)) / earth_diameter_m)) AS distance_m
    FROM
    (
        SELECT driver_id, ts, seq, lat_e7, lng_e7, lng_e7 / 1e7 AS lng, axis_ratio * tan(radians(lat_e7 / 1e7)) AS slope, equator_m / sqrt(1 + slope * slope) AS axis_m
        FROM {database}.positions{all} FINAL
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
            AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
            AND lat_e7 BETWEEN ({lat:Float64} - lat_band) * 1e7 AND ({lat:Float64} + lat_band) * 1e7
            AND abs(abs(lng_e7 / 1e7 - {lng:Float64}) - 180) >= 180 - lng_band
            AND (acc_dm = 65535 OR acc_dm <= 2000)
    )
)
WHERE distance_m <= {metres:Float64}
    AND (driver_id, toUnixTimestamp64Milli(ts), seq, lat_e7, lng_e7) GLOBAL NOT IN
    (
        SELECT toString(driver_id), dropped.ms, dropped.seq, dropped.lat_e7, dropped.lng_e7
        FROM {database}.driver_days_state{all} FINAL
        ARRAY JOIN dropped
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND day >= toDate32(parseDateTime64BestEffort({from:String}, 3, {tz:String}), 'UTC')
            AND day <= toDate32(parseDateTime64BestEffort({to:String}, 3, {tz:String}), 'UTC')
            AND dropped.lat_e7 BETWEEN ({lat:Float64} - lat_band) * 1e7 AND ({lat:Float64} + lat_band) * 1e7
    )
GROUP BY driver_id
SETTINGS -- the first three of these shorten the planning (sql/360)
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'near(lat, lng, metres, driver, from, to, tz)'
