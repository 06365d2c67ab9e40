-- Visits of drivers to areas. A visit lasts from the first fix inside to the last one before a fix outside, or before more than 3,600 s without
-- a fix. Visits that overlap the window are returned whole, up to 12 hours beyond it. sql/373 replaces this view.
--
-- Testing whether a fix is inside a polygon is slow, so a grid preselects pairs of a fix and an area. Its cells are a twentieth of a degree
-- wide, or five degrees for large areas. A pair is tested exactly if both are in the same cell, and the fix is within the bounds of the area.
CREATE VIEW IF NOT EXISTS {database}_ask.fence_visits{on_cluster} AS
WITH
    3600000 AS gap_ms,
    areas AS
    (
        SELECT
            name, valid_from, valid_until, polygons, outline,
            arrayMin(outline.lat) AS south, arrayMax(outline.lat) AS north, arrayMin(outline.lng) AS west, arrayMax(outline.lng) AS east,
            if(north - south > 2 OR east - west > 2, 5, 0.05) AS degrees
        FROM (SELECT *, arrayFlatten(polygons) AS outline FROM {database}.fences FINAL)
        WHERE ({fence:String} = '' OR name = {fence:String}) AND notEmpty(outline)
    )
SELECT
    fence, driver_id,
    fromUnixTimestamp64Milli(min(ms), {tz:String}) AS entered, fromUnixTimestamp64Milli(max(ms), {tz:String}) AS left_at,
    (max(ms) - min(ms)) / 1000 AS seconds, count() AS fixes
FROM
(
    SELECT *, sum(begins) OVER (PARTITION BY fence, driver_id ORDER BY place ROWS UNBOUNDED PRECEDING) AS visit
    FROM
    (
        SELECT
            fence, driver_id, ms, place,
            place != lagInFrame(place, 1, 0) OVER one_by_one + 1 OR ms - lagInFrame(ms, 1, ms) OVER one_by_one > gap_ms AS begins
        FROM
        (
            SELECT DISTINCT areas.name AS fence, driver_id, ms, place
            FROM
            (
                SELECT *, degrees, toInt32(floor(lat / degrees)) AS row, toInt32(floor(lng / degrees)) AS col
                FROM
                (
                    SELECT
                        driver_id, ts, lat, lng, toUnixTimestamp64Milli(ts) AS ms,
                        row_number() OVER (PARTITION BY driver_id ORDER BY ts, seq, lat, lng) AS place
                    FROM {database}.fixes
                    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                        AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String}) - INTERVAL 12 HOUR
                        AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String}) + INTERVAL 12 HOUR
                )
                ARRAY JOIN [0.05, 5] AS degrees
            ) AS fix
            INNER JOIN
            (
                SELECT
                    name, valid_from, valid_until, polygons, south, north, west, east, degrees, row,
                    arrayJoin(range(toInt32(floor(west / degrees)), toInt32(floor(east / degrees)) + 1)) AS col
                FROM (SELECT *, arrayJoin(range(toInt32(floor(south / degrees)), toInt32(floor(north / degrees)) + 1)) AS row FROM areas)
            ) AS areas ON fix.degrees = areas.degrees AND fix.row = areas.row AND fix.col = areas.col
            WHERE ts >= valid_from AND ts < valid_until AND lat BETWEEN south AND north AND lng BETWEEN west AND east
                AND arrayExists(polygon -> pointInPolygon((lng, lat), polygon), polygons)
        )
        WINDOW one_by_one AS (PARTITION BY fence, driver_id ORDER BY place ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
)
GROUP BY fence, driver_id, visit
HAVING left_at >= parseDateTime64BestEffort({from:String}, 3, {tz:String}) AND entered < parseDateTime64BestEffort({to:String}, 3, {tz:String})
COMMENT 'fence_visits(fence, driver, from, to, tz)'
