-- A row for each driver and local day: how far, how long. The window is widened to whole days, so that any window gives the same days.
-- A gap's metres belong to the day in which it ends. Trips and stops count on the day on which they begin.
CREATE VIEW IF NOT EXISTS {database}_ask.days{on_cluster} AS
SELECT
    driver_id, toDate(toDateTime(part.quarter * 900, 'UTC'), {tz:String}) AS day,
    sum(part.fixes) AS fixes,
    sumIf(part.metres, part.kind = 'trip') AS metres,
    sumIf(if(number = first_at AND is_after_gap, gap_m, part.metres), part.kind = 'gap') AS untracked_m,
    sumIf(part.ended_ms - part.began_ms, part.kind = 'trip') / 1000 AS moving_s,
    sumIf(part.ended_ms - part.began_ms, part.kind = 'stop') / 1000 AS standing_s,
    countIf(part.kind = 'trip' AND nth = 1 AND NOT (number = first_at AND is_continued)) AS trips,
    countIf(part.kind = 'stop' AND nth = 1 AND NOT (number = first_at AND is_continued)) AS stops,
    if(sum(part.speed_count) = 0, NULL, toFloat32(max(part.speed_max) / 100)) AS speed_max
FROM {database}_ask.driver_days(
    driver = {driver:String},
    since = toString(toDate(toTimeZone(toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})), 'UTC')) - 1),
    until = toString(toDate(toTimeZone(toStartOfDay(parseDateTime64BestEffort({to:String}, 3, {tz:String})) + INTERVAL 1 DAY, 'UTC'))))
ARRAY JOIN parts AS part, arrayEnumerate(parts.piece) AS number, arrayEnumerateUniq(parts.piece, parts.kind) AS nth
GROUP BY driver_id, day
HAVING day >= toDate(toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})))
    AND day <= toDate(parseDateTime64BestEffort({to:String}, 3, {tz:String}) - INTERVAL 1 MILLISECOND)
COMMENT 'days(driver, from, to, tz)'
