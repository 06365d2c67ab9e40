-- A row for each driver and local day: how far, how long. The window is widened to whole days, so that any window gives the same days.
-- What crosses midnight is divided there by its time. A gap's metres belong to the day in which it ends. Trips and stops count
-- on the day on which they begin.
CREATE OR REPLACE VIEW {database}_ask.days AS
WITH
    toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})) AS since,
    toStartOfDay(parseDateTime64BestEffort({to:String}, 3, {tz:String}) - INTERVAL 1 MILLISECOND) + INTERVAL 1 DAY AS until
SELECT
    driver_id, day, sum(part_fixes) AS fixes,
    minIf(part_first, part_fixes > 0) AS first, maxIf(part_last, part_fixes > 0) AS last,
    sum(part_metres) AS metres, sum(part_untracked) AS untracked_m,
    sum(part_moving) AS moving_s, sum(part_standing) AS standing_s,
    sum(part_trips) AS trips, sum(part_stops) AS stops, max(part_speed) AS speed_max
FROM
(
    SELECT
        driver_id, part.1 AS day, part.2 AS part_fixes, part.3 AS part_metres, part.4 AS part_moving, part.5 AS part_standing,
        part.6 AS part_trips, part.7 AS part_stops, part.8 AS part_untracked, if(part.2 > 0, speed_max, NULL) AS part_speed,
        first AS part_first, last AS part_last
    FROM
    (
        SELECT
            driver_id, ended_on, max(speed) AS speed_max,
            fromUnixTimestamp64Milli(min(ended_ms), {tz:String}) AS first, fromUnixTimestamp64Milli(max(ended_ms), {tz:String}) AS last,
            [
                (ended_on, count(), sum(metres * share), sumIf(seconds * share, kind = 'trip'), sumIf(seconds * share, kind = 'stop'),
                    countIf(is_first AND kind = 'trip' AND NOT crosses), countIf(is_first AND kind = 'stop' AND NOT crosses), sum(untracked_m)),
                (ended_on - 1, 0, sum(metres * (1 - share)), sumIf(seconds * (1 - share), kind = 'trip'), sumIf(seconds * (1 - share), kind = 'stop'),
                    countIf(is_first AND kind = 'trip' AND crosses), countIf(is_first AND kind = 'stop' AND crosses), 0)
            ] AS parts
        FROM
        (
            SELECT
                *,
                fromUnixTimestamp64Milli(ended_ms, {tz:String}) AS ended,
                toDate(ended) AS ended_on,
                toInt64(toUnixTimestamp(toStartOfDay(ended))) * 1000 AS midnight_ms,
                (ended_ms - began_ms) / 1000 AS seconds,
                began_ms < midnight_ms AND kind IN ('trip', 'stop') AS crosses,
                if(crosses, (ended_ms - midnight_ms) / (ended_ms - began_ms), 1) AS share
            FROM {database}_ask.legs(
                driver = {driver:String}, tz = {tz:String},
                from = toString(toUnixTimestamp(toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})))),
                to = toString(toUnixTimestamp(toStartOfDay(parseDateTime64BestEffort({to:String}, 3, {tz:String}) - INTERVAL 1 MILLISECOND) + INTERVAL 1 DAY)))
        )
        GROUP BY driver_id, ended_on
    )
    ARRAY JOIN parts AS part
)
WHERE day >= toDate(since) AND day < toDate(until)
GROUP BY driver_id, day
HAVING fixes > 0 OR moving_s > 0 OR standing_s > 0
COMMENT 'days(driver, from, to, tz)'
