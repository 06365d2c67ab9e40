-- Rows of driver_days_state, each with its connection to the last row before it, if that is at most three days earlier. `days` and `episodes`
-- read this view. since and until are UTC dates. Each array of `parts` is a column of its own, so a query reads only those that it needs.
--   ways         Length of each part, metres.
--   is_parked    The part is parking: a silence that ended where it began, which counts as a stop.
--   final_kinds  Kind of each part, with parking as 'stop'.
--   is_new       A trip or stop begins with this part.
CREATE OR REPLACE VIEW {database}_ask.driver_days{on_cluster} AS
WITH
    3600000 AS gap_ms, -- as in sql/360
    6378137 AS equator_m, -- equatorial radius of WGS84
    0.9966471893352525 AS flat, -- polar radius of WGS84, divided by the equatorial radius
    2 * 6371008.8 AS earth_m, -- mean diameter of the earth
    -- A slope is the tangent of the reduced latitude, so a point on the ellipsoid has the distance axis_of(slope) from the axis of the earth, and
    -- the distance flat * slope * axis_of(slope) from the plane of the equator. metres_between: the arc over the straight line between two
    -- points, metres. Longitudes are in 1e-7 degrees.
    slope -> equator_m / sqrt(1 + slope * slope) AS axis_of,
    (slope, lng, slope0, lng0) -> earth_m * asin(least(1., sqrt(pow(axis_of(slope) - axis_of(slope0), 2)
        + pow(flat * (slope * axis_of(slope) - slope0 * axis_of(slope0)), 2)
        + axis_of(slope) * axis_of(slope0) * pow(2 * sin(radians((lng - lng0) / 2e7)), 2)) / earth_m)) AS metres_between
SELECT
    *,
    arrayMap(
        (kind, kind_before, part_at) -> kind IN ('trip', 'stop') AND kind != kind_before
            AND NOT (part_at = first_at AND (is_continued OR is_after_gap AND kind = 'stop' AND last_kind_before = 'stop')),
        final_kinds, arrayPopBack(arrayPushFront(arrayFill(kind -> kind != 'dropped', final_kinds), '')), arrayEnumerate(kinds)) AS is_new
FROM
(
SELECT
    *,
    arrayMap((kind, parked) -> if(parked, 'stop', CAST(kind, 'String')), kinds, is_parked) AS final_kinds
FROM
(
SELECT
    *,
    arrayMap(
        (kind, began, ended, metres, part_at) -> kind = 'gap' AND if(part_at = first_at AND is_after_gap, ended - before_ms > gap_ms AND gap_m <= trip_m, ended - began > gap_ms AND metres <= trip_m),
        kinds, begins_ms, ends_ms, ways, arrayEnumerate(kinds)) AS is_parked
FROM
(
SELECT
    * EXCEPT (slope, befores, before, older, before_day, before_kind, before_slope, before_final_kind, before_trip_m),
    -- If `before` is a single fix after a silence, that silence is parking if the fix is near the last fix of `older`.
    if(before_final_kind != '', before_final_kind, if(older.4 + 3 >= before_day AND before_ms - older.1 > gap_ms
        AND metres_between(before_slope, before_lng_e7, older.6, older.3) <= before_trip_m, 'stop', 'gap')) AS last_kind_before,
    -- is_continued: the first trip or stop continues the last one of the day before.
    before_day + 1 = day AND first_at > 0 AND before_kind = kinds[first_at] AND before_ms = begins_ms[first_at] AND before_kind != 'gap' AS is_continued,
    before_day + 3 >= day AND before_kind != 'dropped' AND first_at > 0 AND kinds[first_at] = 'gap' AND begins_ms[first_at] = ends_ms[first_at] AS is_after_gap,
    is_after_gap * metres_between(slope, to_lngs[first_at], before_slope, before_lng_e7) AS gap_m
FROM
(
    SELECT
        *,
        flat * tan(radians(to_lats[first_at] / 1e7)) AS slope,
        -- befores: the ends of the rows before, without rows whose fixes were all dropped. Six rows, because `before` is at most three days
        -- earlier, and `older` at most three days before that. Elements: time, latitude and longitude of the last fix; day; kind of the last
        -- part; slope of the last fix; kind of the last part with parking as 'stop', or empty if the row is a single fix after a silence; trip_m.
        groupArrayIf((ends_ms[last_at], to_lats[last_at], to_lngs[last_at], day, if(last_at = 0, 'dropped', kinds[last_at]), flat * tan(radians(to_lats[last_at] / 1e7)),
            multiIf(kinds[last_at] != 'gap', CAST(kinds[last_at], 'String'), first_at = last_at AND begins_ms[last_at] = ends_ms[last_at], '',
                ends_ms[last_at] - begins_ms[last_at] > gap_ms AND ways[last_at] <= trip_m, 'stop', 'gap'), trip_m), last_at > 0)
            OVER (PARTITION BY driver_id ORDER BY day ROWS BETWEEN 6 PRECEDING AND 1 PRECEDING) AS befores,
        befores[-1] AS before, befores[-2] AS older,
        before.1 AS before_ms, before.2 AS before_lat_e7, before.3 AS before_lng_e7, before.4 AS before_day, before.5 AS before_kind,
        before.6 AS before_slope, before.7 AS before_final_kind, before.8 AS before_trip_m
    FROM
    (
        SELECT
            toString(driver_id) AS driver_id, day, trip_m, derived, parts.quarter AS quarters, parts.piece AS pieces, parts.kind AS kinds,
            parts.began_ms AS begins_ms, parts.ended_ms AS ends_ms, parts.metres AS ways, parts.fixes AS counts,
            parts.speed_count AS speed_counts, parts.speed_max AS speeds,
            parts.lat_e7 AS lats, parts.lng_e7 AS lngs, parts.to_lat_e7 AS to_lats, parts.to_lng_e7 AS to_lngs,
            arrayFirstIndex(kind -> kind != 'dropped', kinds) AS first_at, arrayLastIndex(kind -> kind != 'dropped', kinds) AS last_at
        FROM {database}.driver_days_state{all} FINAL
        WHERE day >= toDate({since:String}) AND day <= toDate({until:String}) AND notEmpty(parts.kind)
            AND ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
    )
)
)
)
)
SETTINGS -- the first five shorten the planning (sql/360)
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    query_plan_execute_functions_after_sorting = 0, query_plan_merge_expressions = 0,
    optimize_move_to_prewhere_if_final = 1
COMMENT 'driver_days(driver, since, until)'
