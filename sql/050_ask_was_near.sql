-- `near` by way of cell_quarters: its cells around the point say who was about and when, and only these fixes are looked at. So many rings of
-- cells hold the circle: where a cell's edge is shortest, 390 m, a ring less is left behind after 390 m at the earliest. GLOBAL
-- because all shards' cells are wanted where there are shards. Elsewhere it means nothing.
CREATE OR REPLACE VIEW {database}_ask.was_near AS
WITH
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m, -- its mean diameter
    if(geoToH3(0., 90., 8) = 614859418697203711, geoToH3({lat:Float64}, {lng:Float64}, 8), geoToH3({lng:Float64}, {lat:Float64}, 8)) AS middle,
    floor({metres:Float64} / 300) + 1 AS rings,
    about AS
    (
        SELECT DISTINCT driver_id, quarter
        FROM {database}.cell_quarters_state
        WHERE cell IN (SELECT arrayJoin(h3kRing(middle, toUInt16(rings + throwIf(rings > 167, 'was_near looks 50 km far, near looks farther')))))
            AND quarter >= toStartOfFifteenMinutes(toDateTime(parseDateTime64BestEffort({from:String}, 3, {tz:String}), 'UTC'))
            AND quarter < toDateTime(parseDateTime64BestEffort({to:String}, 3, {tz:String}), 'UTC') + 1
            AND ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
    ),
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
WHERE driver_id GLOBAL IN (SELECT driver_id FROM about)
    AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
    AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
    AND (driver_id, toStartOfFifteenMinutes(toDateTime(ts, 'UTC'))) GLOBAL IN (SELECT driver_id, quarter FROM about)
    AND away <= {metres:Float64}
GROUP BY driver_id
COMMENT 'was_near(lat, lng, metres, driver, from, to, tz)'
