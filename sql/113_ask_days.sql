-- A row for each driver and local day: how far, how long. The window is widened to whole days, so that any window gives the same days.
-- A gap's metres belong to the day in which it ends. Trips and stops count on the day on which they begin. What joins a day to the one
-- before is as in driver_days (112), which is not read: a view of a view is planned a quarter longer. Each array of `parts` is
-- selected by itself, so that a question reads only what it needs.
CREATE VIEW IF NOT EXISTS {database}_ask.days{on_cluster} AS
WITH
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m, -- its mean diameter
    (lat, lng) -> (
        equator_m / sqrt(1 - e2 * pow(sin(radians(lat / 1e7)), 2)) * cos(radians(lat / 1e7)) * cos(radians(lng / 1e7)),
        equator_m / sqrt(1 - e2 * pow(sin(radians(lat / 1e7)), 2)) * cos(radians(lat / 1e7)) * sin(radians(lng / 1e7)),
        equator_m / sqrt(1 - e2 * pow(sin(radians(lat / 1e7)), 2)) * (1 - e2) * sin(radians(lat / 1e7))) AS on_axes
SELECT
    driver_id, toDate(toDateTime(quarter * 900, 'UTC'), {tz:String}) AS day,
    sum(part_fixes) AS fixes,
    sumIf(way, kind = 'trip') AS metres,
    sumIf(if(place = first_at AND is_after_gap, earth_m * asin(least(1., L2Distance(on_axes(before.4, before.5), on_axes(to_lat_e7, to_lng_e7)) / earth_m)), way),
        kind = 'gap') AS untracked_m,
    sumIf(ended_ms - began_ms, kind = 'trip') / 1000 AS moving_s,
    sumIf(ended_ms - began_ms, kind = 'stop') / 1000 AS standing_s,
    countIf(kind = 'trip' AND nth = 1 AND NOT (place = first_at AND is_continued)) AS trips,
    countIf(kind = 'stop' AND nth = 1 AND NOT (place = first_at AND is_continued)) AS stops,
    if(sum(speed_count) = 0, NULL, toFloat32(max(speed) / 100)) AS speed_max
FROM
(
    SELECT
        toString(driver_id) AS driver_id, day AS utc_day,
        parts.quarter AS quarters, parts.piece AS pieces, parts.kind AS kinds, parts.began_ms AS begins_ms, parts.ended_ms AS ends_ms, parts.metres AS ways,
        parts.fixes AS counts, parts.speed_count AS speed_counts, parts.speed_max AS speeds, parts.to_lat_e7 AS to_lats, parts.to_lng_e7 AS to_lngs,
        arrayFirstIndex(kind -> kind != 'dropped', kinds) AS first_at, arrayLastIndex(kind -> kind != 'dropped', kinds) AS last_at,
        lagInFrame((day, kinds[last_at], ends_ms[last_at], to_lats[last_at], to_lngs[last_at]))
            OVER (PARTITION BY driver_id ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before,
        before.1 + 1 = utc_day AND before.2 = kinds[first_at] AND before.3 = begins_ms[first_at] AND kinds[first_at] != 'gap' AS is_continued,
        before.1 + 1 = utc_day AND before.2 != 'dropped' AND kinds[first_at] = 'gap' AND begins_ms[first_at] = ends_ms[first_at] AS is_after_gap
    FROM {database}.driver_days_state{all} FINAL
    WHERE day >= toDate(toTimeZone(toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})), 'UTC')) - 1
        AND day <= toDate(toTimeZone(toStartOfDay(parseDateTime64BestEffort({to:String}, 3, {tz:String})) + INTERVAL 1 DAY, 'UTC'))
        AND notEmpty(parts.kind)
        AND ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
)
ARRAY JOIN
    quarters AS quarter, kinds AS kind, begins_ms AS began_ms, ends_ms AS ended_ms, ways AS way, counts AS part_fixes, speed_counts AS speed_count,
    speeds AS speed, to_lats AS to_lat_e7, to_lngs AS to_lng_e7, arrayEnumerate(kinds) AS place, arrayEnumerateUniq(pieces, kinds) AS nth
GROUP BY driver_id, day
HAVING day >= toDate(toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})))
    AND day <= toDate(parseDateTime64BestEffort({to:String}, 3, {tz:String}) - INTERVAL 1 MILLISECOND)
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'days(driver, from, to, tz)'
