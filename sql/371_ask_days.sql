-- A row for each driver and local day, with distances and durations. The window is widened to whole days, so that every window gives the
-- same figures for a day. A gap's metres belong to the day in which it ends. Trips and stops count on the day on which they begin. A silence
-- that ends where it began is standing time on each of its days; silent_s is the part of standing_s without fixes. speed_derived_max is the
-- highest mean speed between two samples (sql/360) that are at least 5 s apart and have no speed.
CREATE OR REPLACE VIEW {database}_ask.days{on_cluster} AS
SELECT
    driver_id, local_day AS day,
    sumIf(part_fixes, days_ago = 0) AS fixes,
    sumIf(part_metres, final_kind = 'trip') AS metres,
    sumIf(if(is_first AND is_after_gap, gap_m, part_metres), final_kind = 'gap' AND days_ago = 0) AS untracked_m,
    sumIf(ms, final_kind = 'trip') / 1000 AS moving_s,
    sumIf(ms, final_kind = 'stop') / 1000 AS standing_s,
    sumIf(ms, parked) / 1000 AS silent_s,
    countIf(is_new AND final_kind = 'trip') AS trips,
    countIf(is_new AND final_kind = 'stop' AND days_ago = days_before) AS stops,
    if(sumIf(speed_count, days_ago = 0) = 0, NULL, toFloat32(maxIf(speed, days_ago = 0) / 100)) AS speed_max,
    toFloat32(nullIf(maxIf(derived.2[indexOf(derived.1, quarter)], days_ago = 0), 0) / 100) AS speed_derived_max
FROM
(
    SELECT
        -- Parking has a row for each day that it touches, and its fixes belong to the last one. Any other part is on one day.
        *, arrayJoin(range(days_before + 1)) AS days_ago, quarter_day - days_ago AS local_day,
        if(parked, least(ended_ms, 1000 * toInt64(toUnixTimestamp(toDateTime(local_day + 1, {tz:String}))))
            - greatest(since_ms, 1000 * toInt64(toUnixTimestamp(toDateTime(local_day, {tz:String})))), ended_ms - began_ms) AS ms
    FROM
    (
        SELECT
            driver_id, quarter, final_kind, began_ms, ended_ms, part_metres, part_fixes, speed_count, speed, derived, is_after_gap, gap_m, part_at = first_at AS is_first,
            final_kind IN ('trip', 'stop') AND (final_kind != kind_before OR part_at = 1) AND NOT (is_first AND is_joined) AS is_new,
            kind = 'gap' AND final_kind = 'stop' AS parked, if(is_first AND is_after_gap, before_ms, began_ms) AS since_ms,
            toDate(toDateTime(quarter * 900, 'UTC'), {tz:String}) AS quarter_day,
            if(parked, toUInt32(quarter_day - toDate(fromUnixTimestamp64Milli(since_ms, {tz:String}))), 0) AS days_before
        FROM {database}_ask.driver_days(
            driver = {driver:String},
            -- The UTC days of four days before and three days after the window. A local day begins and ends at most one UTC day away.
            since = toString(toDate32(parseDateTime64BestEffort({from:String}, 3, {tz:String})) - 5),
            until = toString(toDate32(parseDateTime64BestEffort({to:String}, 3, {tz:String}) - INTERVAL 1 MILLISECOND) + 4))
        ARRAY JOIN
            quarters AS quarter, kinds AS kind, begins_ms AS began_ms, ends_ms AS ended_ms, ways AS part_metres, counts AS part_fixes, speed_counts AS speed_count,
            speeds AS speed, arrayEnumerate(kinds) AS part_at, final_kinds AS final_kind,
            arrayRotateRight(arrayFill(kind -> kind != 'dropped', final_kinds), 1) AS kind_before
    )
)
GROUP BY driver_id, day
HAVING day >= toDate32(parseDateTime64BestEffort({from:String}, 3, {tz:String}))
    AND day <= toDate32(parseDateTime64BestEffort({to:String}, 3, {tz:String}) - INTERVAL 1 MILLISECOND)
SETTINGS -- these shorten the planning (sql/360)
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    query_plan_execute_functions_after_sorting = 0, query_plan_merge_expressions = 0
COMMENT 'days(driver, from, to, tz)'
