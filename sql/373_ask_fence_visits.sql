-- Visits of drivers to areas. A visit lasts from the first fix inside to the last one, and continues if the driver is outside for at most 60 s.
-- A silence is more than 3,600 s without a fix. If it ends at most 210 m from where it began, the silence is parking, and the visit continues.
-- Otherwise the silence ends the visit. Dropped fixes are left out, as in trips (sql/360).
--
-- Visits that overlap the window from `from` to `to` are returned whole, up to 12 hours beyond it. If a silence crosses that limit, the visit
-- also includes the fix at the other end of the silence, up to three UTC days beyond the limit. That fix comes from driver_days_state: the view
-- does not read positions of those days.
--
-- A driver counts as still inside if the newest fix is inside, and is from today (UTC) or from one of the three days before. Such a visit
-- overlaps every later window. is_open: the visit has the newest fix that this query read. last_positions may already have a newer one.
--
-- Testing whether a fix is inside a polygon is slow, so a grid preselects pairs of a fix and an area. Its cells are a twentieth of a degree
-- wide, or five degrees for large areas. A pair is tested exactly if both are in the same cell, and the fix is within the bounds of the area.
CREATE OR REPLACE VIEW {database}_ask.fence_visits{on_cluster} AS
WITH
    parseDateTime64BestEffort({from:String}, 3, {tz:String}) - INTERVAL 12 HOUR AS first_ts,
    parseDateTime64BestEffort({to:String}, 3, {tz:String}) + INTERVAL 12 HOUR AS end_ts,
    toUnixTimestamp64Milli(first_ts) AS first_ms, toUnixTimestamp64Milli(end_ts) AS end_ms,
    3 AS silent_days, -- longest silence that counts as parking, UTC days; as in trips (sql/370)
    3600000 AS gap_ms, -- a longer time without a fix is a silence, as in sql/360
    -- A driver whose newest fix is older no longer counts as inside.
    toUnixTimestamp64Milli(toDateTime64(toStartOfDay(now('UTC')) - toIntervalDay(silent_days), 3)) AS still_inside_ms,
    60000 AS absence_ms_max, -- longest absence within a visit
    210 AS parking_m, -- trip_m of a car (sql/351), plus 10 m for the error of geoDistance far from the equator
    areas AS
    (
        SELECT
            name, valid_from, valid_until, polygons, outline,
            arrayMin(outline.lat) AS south, arrayMax(outline.lat) AS north, arrayMin(outline.lng) AS west, arrayMax(outline.lng) AS east,
            if(north - south > 2 OR east - west > 2, 5, 0.05) AS cell_deg
        FROM (SELECT *, arrayFlatten(polygons) AS outline FROM {database}.fences FINAL)
        WHERE ({fence:String} = '' OR name = {fence:String}) AND notEmpty(outline)
    )
SELECT
    fence, driver_id,
    fromUnixTimestamp64Milli(min(ms), {tz:String}) AS entered, fromUnixTimestamp64Milli(max(ms), {tz:String}) AS left_at,
    (max(ms) - min(ms)) / 1000 AS seconds, count() AS fixes, max(is_newest) AS is_open
FROM
(
    SELECT *, sum(begins) OVER (PARTITION BY fence, driver_id ORDER BY fix_number ROWS UNBOUNDED PRECEDING) AS visit
    FROM
    (
        SELECT
            -- before: the driver's previous fix in the area; its number is 0 if there is no such fix.
            fence, driver_id, ms, fix_number, is_newest, lagInFrame((fix_number, ms, lat, lng)) OVER with_previous AS before,
            before.1 AS before_number, before.2 AS before_ms, before.3 AS before_lat, before.4 AS before_lng,
            before_number = 0 OR fix_number != before_number + 1 AND ms - before_ms > absence_ms_max
                OR ms - before_ms > gap_ms AND geoDistance(lng, lat, before_lng, before_lat) > parking_m AS begins
        FROM
        (
            SELECT DISTINCT area_cells.name AS fence, driver_id, ms, fix_number, is_newest, lat, lng
            FROM
            (
                -- Each fix with its cell in both grids.
                SELECT *, cell_deg, toInt32(floor(lat / cell_deg)) AS row, toInt32(floor(lng / cell_deg)) AS col
                FROM
                (
                    SELECT
                        driver_id, ts, lat_e7 / 1e7 AS lat, lng_e7 / 1e7 AS lng, toUnixTimestamp64Milli(ts) AS ms,
                        row_number() OVER in_order AS fix_number, leadInFrame(toUInt8(1)) OVER in_order = 0 AS is_newest
                    FROM
                    (
                        SELECT toString(driver_id) AS driver_id, ts, seq, lat_e7, lng_e7
                        FROM {database}.positions{all} FINAL
                        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                            AND ts >= first_ts AND ts < end_ts AND (acc_dm = 65535 OR acc_dm <= 2000)
                            AND (driver_id, toUnixTimestamp64Milli(ts), seq, lat_e7, lng_e7) GLOBAL NOT IN
                            (
                                SELECT toString(driver_id), dropped.ms, dropped.seq, dropped.lat_e7, dropped.lng_e7
                                FROM {database}.driver_days_state{all} FINAL
                                ARRAY JOIN dropped
                                WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                                    AND day >= toDate32(first_ts, 'UTC') AND day <= toDate32(end_ts, 'UTC')
                            )
                        UNION ALL
                        -- Adds these fixes of each driver from beyond the window:
                        --   1. the last fix before a silence that crosses first_ts; the silence may not have ended yet
                        --   2. the end of the trip before that fix
                        --   3. the first fix after a silence that crosses end_ts
                        -- and the ends of all gaps between that trip and that fix: the driver may have left the area and come back without a trip.
                        -- The innermost query reduces a gap to the time and place of the fix that ends it (began = ended). All other parts follow
                        -- each other without a pause, so a pause between two parts is a silence. The tuple `silence` holds the fix to add, and the
                        -- times of the fixes at both ends of the silence, 0 if there is no such fix. A fix is (began, ended, latitude, longitude).
                        SELECT driver_id, fromUnixTimestamp64Milli(fix.1, 'UTC'), toUInt32(0), fix.3, fix.4
                        FROM
                        (
                            SELECT
                                driver_id, maxIf((ended, ended, lat_e7, lng_e7), ended < first_ms) AS last, minIf(began, ended >= first_ms) AS next_ms,
                                maxIf((ended, ended, lat_e7, lng_e7), ended < first_ms AND part.1 = 'trip') AS arrival,
                                groupArrayIf((ended, ended, lat_e7, lng_e7), ended < first_ms AND part.1 = 'gap') AS gap_ends,
                                arrayJoin(arrayDistinct(arrayConcat(
                                    arrayMap(gap_end -> (gap_end, last.1, next_ms), arrayFilter(gap_end -> gap_end.1 > arrival.1, gap_ends)), [
                                    (last, last.1, next_ms),
                                    (arrival, last.1, next_ms),
                                    (minIf((began, ended, lat_e7, lng_e7), began >= end_ms) AS first_after, first_after.1, maxIf(ended, began < end_ms))]))) AS silence,
                                silence.1 AS fix
                            FROM
                            (
                                SELECT
                                    toString(driver_id) AS driver_id,
                                    arrayJoin(arrayZip(parts.kind, parts.began_ms, parts.ended_ms, parts.to_lat_e7, parts.to_lng_e7)) AS part,
                                    if(part.1 = 'gap', part.3, part.2) AS began, part.3 AS ended, part.4 AS lat_e7, part.5 AS lng_e7
                                FROM {database}.driver_days_state{all} FINAL
                                WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                                    AND day >= toDate32(first_ts, 'UTC') - silent_days AND day <= toDate32(end_ts, 'UTC') + silent_days
                            )
                            WHERE part.1 != 'dropped'
                            GROUP BY driver_id
                        )
                        WHERE fix.1 > 0 AND if(silence.3 > 0, abs(silence.2 - silence.3) > gap_ms, silence.2 >= still_inside_ms AND silence.2 < first_ms)
                    )
                    WINDOW in_order AS (PARTITION BY driver_id ORDER BY ts, seq, lat_e7, lng_e7 ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)
                )
                ARRAY JOIN [0.05, 5] AS cell_deg
            ) AS fix_cells
            INNER JOIN
            (
                -- Each area once for each cell that its bounds touch.
                SELECT
                    name, valid_from, valid_until, polygons, south, north, west, east, cell_deg, row,
                    arrayJoin(range(toInt32(floor(west / cell_deg)), toInt32(floor(east / cell_deg)) + 1)) AS col
                FROM (SELECT *, arrayJoin(range(toInt32(floor(south / cell_deg)), toInt32(floor(north / cell_deg)) + 1)) AS row FROM areas)
            ) AS area_cells ON fix_cells.cell_deg = area_cells.cell_deg AND fix_cells.row = area_cells.row AND fix_cells.col = area_cells.col
            WHERE ts >= valid_from AND ts < valid_until AND lat BETWEEN south AND north AND lng BETWEEN west AND east
                AND arrayExists(polygon -> pointInPolygon((lng, lat), polygon), polygons)
        )
        WINDOW with_previous AS (PARTITION BY fence, driver_id ORDER BY fix_number ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
)
GROUP BY fence, driver_id, visit
HAVING (left_at >= parseDateTime64BestEffort({from:String}, 3, {tz:String}) OR max(is_newest AND ms >= still_inside_ms))
    AND entered < parseDateTime64BestEffort({to:String}, 3, {tz:String})
SETTINGS -- the first two of these halve the planning time (sql/360)
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0,
    do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'fence_visits(fence, driver, from, to, tz)'
