-- A row for each driver and local day, with distances and durations. The window is widened to whole days, so that every window gives the same
-- figures for a day. A gap's metres belong to the day in which it ends. Trips and stops count on the day on which they begin. sql/371 replaces
-- this view.
CREATE VIEW IF NOT EXISTS {database}_ask.days{on_cluster} AS
SELECT
    driver_id, toDate(toDateTime(quarter * 900, 'UTC'), {tz:String}) AS day,
    sum(part_fixes) AS fixes,
    sumIf(way, kind = 'trip') AS metres,
    sumIf(if(place = first_at AND is_after_gap, gap_m, way), kind = 'gap') AS untracked_m,
    sumIf(ended_ms - began_ms, kind = 'trip') / 1000 AS moving_s,
    sumIf(ended_ms - began_ms, kind = 'stop') / 1000 AS standing_s,
    countIf(kind = 'trip' AND nth = 1 AND NOT (place = first_at AND is_continued)) AS trips,
    countIf(kind = 'stop' AND nth = 1 AND NOT (place = first_at AND is_continued)) AS stops,
    if(sum(speed_count) = 0, NULL, toFloat32(max(speed) / 100)) AS speed_max
FROM {database}_ask.driver_days(
    driver = {driver:String},
    since = toString(toDate(toTimeZone(toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})), 'UTC')) - 1),
    until = toString(toDate(toTimeZone(toStartOfDay(parseDateTime64BestEffort({to:String}, 3, {tz:String})) + INTERVAL 1 DAY, 'UTC'))))
ARRAY JOIN
    quarters AS quarter, kinds AS kind, begins_ms AS began_ms, ends_ms AS ended_ms, ways AS way, counts AS part_fixes, speed_counts AS speed_count,
    speeds AS speed, arrayEnumerate(kinds) AS place, arrayEnumerateUniq(pieces, kinds) AS nth
GROUP BY driver_id, day
HAVING day >= toDate(toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})))
    AND day <= toDate(parseDateTime64BestEffort({to:String}, 3, {tz:String}) - INTERVAL 1 MILLISECOND)
COMMENT 'days(driver, from, to, tz)'
