-- A row for each driver and local day, with distances and durations. The window is widened to whole days, so that every window gives the
-- same figures for a day. A gap's metres belong to the day in which it ends. Trips and stops count on the day on which they begin. A silence
-- that ends where it began is standing time on each of its days; silent_s is the part of standing_s without fixes. speed_derived_max is the
-- highest mean speed between the first fixes of two 15-second spans that are at least 5 s apart and have no speed.
CREATE OR REPLACE VIEW {database}_ask.days{on_cluster} AS
SELECT
    driver_id, span.1 AS day,
    sumIf(part_fixes, span.4) AS fixes,
    sumIf(part_metres, kind = 'trip') AS metres,
    sumIf(if(part_at = first_at AND is_after_gap, gap_m, part_metres), kind = 'gap' AND NOT parked AND span.4) AS untracked_m,
    sumIf(span.2, kind = 'trip') / 1000 AS moving_s,
    sumIf(span.2, kind = 'stop' OR parked) / 1000 AS standing_s,
    sumIf(span.2, parked) / 1000 AS silent_s,
    countIf(new AND kind = 'trip') AS trips,
    countIf(new AND kind != 'trip' AND span.3) AS stops,
    if(sum(speed_count) = 0, NULL, toFloat32(max(speed) / 100)) AS speed_max,
    toFloat32(nullIf(max(quarter_derived), 0) / 100) AS speed_derived_max
FROM
(
    SELECT
        driver_id, kind, part_metres, part_fixes, speed_count, speed, if(span.4, derived.2[indexOf(derived.1, toUInt32(quarter))], 0) AS quarter_derived, part_at, first_at, is_after_gap, gap_m, parked, new,
        if(part_at = first_at AND is_after_gap, before_ms, began_ms) AS since_ms, toDate(toDateTime(quarter * 900, 'UTC'), {tz:String}) AS quarter_day,
        -- Local day, milliseconds of the part on it, whether the part begins on it, whether its fixes belong to it. Parking has an element for each
        -- day that it touches; any other part counts in one quarter of an hour, so on one day.
        arrayJoin(if(parked,
            arrayMap(
                local_day -> (local_day,
                    least(ended_ms, 1000 * toInt64(toUnixTimestamp(toDateTime(local_day + 1, {tz:String})))) - greatest(since_ms, 1000 * toInt64(toUnixTimestamp(toDateTime(local_day, {tz:String})))),
                    local_day = toDate(fromUnixTimestamp64Milli(since_ms, {tz:String})), local_day = quarter_day),
                arrayMap(n -> toDate(fromUnixTimestamp64Milli(since_ms, {tz:String})) + n,
                    range(toUInt32(quarter_day - toDate(fromUnixTimestamp64Milli(since_ms, {tz:String})) + 1)))),
            [(quarter_day, ended_ms - began_ms, true, true)])) AS span
    FROM {database}_ask.driver_days(
        driver = {driver:String},
        since = toString(toDate(toTimeZone(toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})), 'UTC')) - 4),
        until = toString(toDate(toTimeZone(toStartOfDay(parseDateTime64BestEffort({to:String}, 3, {tz:String})) + INTERVAL 1 DAY, 'UTC')) + 3))
    ARRAY JOIN
        quarters AS quarter, kinds AS kind, begins_ms AS began_ms, ends_ms AS ended_ms, ways AS part_metres, counts AS part_fixes, speed_counts AS speed_count,
        speeds AS speed, arrayEnumerate(kinds) AS part_at, is_parked AS parked, is_new AS new
)
GROUP BY driver_id, day
HAVING day >= toDate(toStartOfDay(parseDateTime64BestEffort({from:String}, 3, {tz:String})))
    AND day <= toDate(parseDateTime64BestEffort({to:String}, 3, {tz:String}) - INTERVAL 1 MILLISECOND)
SETTINGS -- these shorten the planning (sql/360)
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    query_plan_execute_functions_after_sorting = 0, query_plan_merge_expressions = 0
COMMENT 'days(driver, from, to, tz)'
