-- The drivers who had a fix within the given distance of a point, in metres. Only fixes count, not the lines between them. A band of latitudes
-- and a band of longitudes around the point preselect fixes. Exact distances are computed only for these. The band of longitudes may cross 180
-- degrees. If a pole is within the distance, it is all longitudes. sql/377 replaces this view.
CREATE VIEW IF NOT EXISTS {database}_ask.near{on_cluster} AS
WITH
    6378137 AS equator_m,
    0.9966471893352525 AS flat, -- polar radius of WGS84, divided by the equatorial radius
    2 * 6371008.8 AS earth_m, -- mean diameter of the earth
    {metres:Float64} / 6335439 AS angle, -- 6335439 m is the ellipsoid's smallest radius of curvature, so the angle is never too small
    degrees(angle) + 1e-7 AS band,
    sin(angle) / greatest(cos(radians({lat:Float64})), 1e-12) AS widest,
    if(abs({lat:Float64}) + band >= 90 OR widest >= 1, 180, degrees(asin(least(1, widest))) * 1.01 + 1e-7) AS wing,
    flat * tan(radians({lat:Float64})) AS point_slope,
    equator_m / sqrt(1 + point_slope * point_slope) AS point_axis_m
SELECT
    driver_id,
    toTimeZone(min(ts), {tz:String}) AS first, toTimeZone(max(ts), {tz:String}) AS last, count() AS fixes,
    min(away) AS nearest_m, toTimeZone(argMin(ts, away), {tz:String}) AS nearest
FROM
(
    SELECT
        driver_id, ts,
        earth_m * asin(least(1, sqrt(pow(axis_m - point_axis_m, 2) + pow(flat * (slope * axis_m - point_slope * point_axis_m), 2)
            + axis_m * point_axis_m * pow(2 * sin(radians((lng - {lng:Float64}) / 2)), 2)) / earth_m)) AS away
    FROM
    (
        SELECT driver_id, ts, lng_e7 / 1e7 AS lng, flat * tan(radians(lat_e7 / 1e7)) AS slope, equator_m / sqrt(1 + slope * slope) AS axis_m
        FROM {database}.positions{all} FINAL
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
            AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
            AND lat_e7 BETWEEN ({lat:Float64} - band) * 1e7 AND ({lat:Float64} + band) * 1e7
            AND abs(abs(lng_e7 / 1e7 - {lng:Float64}) - 180) >= 180 - wing
    )
)
WHERE away <= {metres:Float64}
GROUP BY driver_id
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'near(lat, lng, metres, driver, from, to, tz)'
