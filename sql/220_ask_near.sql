-- Who was within so many metres of a point, by their fixes, not by the lines between them. A band of latitudes and one of longitudes
-- (the circle's own, across the antimeridian, every longitude where the circle holds a pole) leave little for the exact distance.
CREATE VIEW IF NOT EXISTS {database}_ask.near{on_cluster} AS
WITH
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m, -- its mean diameter
    {metres:Float64} / 6335439 AS angle, -- over the ellipsoid's smallest radius of curvature: never too small
    degrees(angle) AS band,
    sin(angle) / greatest(cos(radians({lat:Float64})), 1e-12) AS widest,
    if(abs({lat:Float64}) + band >= 90 OR widest >= 1, 180, degrees(asin(least(1, widest))) * 1.01 + 1e-7) AS wing,
    equator_m / sqrt(1 - e2 * pow(sin(radians({lat:Float64})), 2)) AS point_curve_m,
    equator_m / sqrt(1 - e2 * pow(sin(radians(lat)), 2)) AS curve_m,
    earth_m * asin(least(1, sqrt(
        pow(curve_m * cos(radians(lat)) * cos(radians(lng)) - point_curve_m * cos(radians({lat:Float64})) * cos(radians({lng:Float64})), 2)
        + pow(curve_m * cos(radians(lat)) * sin(radians(lng)) - point_curve_m * cos(radians({lat:Float64})) * sin(radians({lng:Float64})), 2)
        + pow((1 - e2) * (curve_m * sin(radians(lat)) - point_curve_m * sin(radians({lat:Float64}))), 2)) / earth_m)) AS away
SELECT
    driver_id,
    toTimeZone(min(ts), {tz:String}) AS first, toTimeZone(max(ts), {tz:String}) AS last, count() AS fixes,
    min(away) AS nearest_m, toTimeZone(argMin(ts, away), {tz:String}) AS nearest
FROM {database}.fixes
WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
    AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
    AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
    AND lat BETWEEN {lat:Float64} - band - 1e-7 AND {lat:Float64} + band + 1e-7
    AND (lng BETWEEN {lng:Float64} - wing AND {lng:Float64} + wing
        OR lng BETWEEN {lng:Float64} - wing + 360 AND {lng:Float64} + wing + 360
        OR lng BETWEEN {lng:Float64} - wing - 360 AND {lng:Float64} + wing - 360)
    AND away <= {metres:Float64}
GROUP BY driver_id
COMMENT 'near(lat, lng, metres, driver, from, to, tz)'
