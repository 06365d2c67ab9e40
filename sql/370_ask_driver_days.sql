-- Rows of driver_days_state, each with its connection to the last row before it, if that is at most three days earlier. `days` and `episodes`
-- read this view. since and until are UTC dates. Each array of `parts` is a column of its own, so a query reads only those that it needs.
--   ways           Length of each part, metres.
--   final_kinds    Kind of each part, but 'stop' for parking: a silence that ended where it began.
--   first_at       Index of the first part that is not dropped, 0 if there is none.
--   before_…       The last fix of the row before.
--   is_after_gap   The first part is the rest of a gap that began on an earlier day, gap_m metres before.
--   is_joined      The first part continues the last trip or stop of the row before.
-- ClickHouse plans each function of a parameterised view twice, which takes longer than reading a day. So the next step uses a result by its name
-- instead of repeating the expression. Kinds stay enums, because arrays of strings are slow.
CREATE OR REPLACE VIEW {database}_ask.driver_days{on_cluster} AS
WITH
    CAST('stop', 'Enum8(\'gap\' = 0, \'trip\' = 1, \'stop\' = 2, \'dropped\' = 3)') AS stop,
    CAST('dropped', 'Enum8(\'gap\' = 0, \'trip\' = 1, \'stop\' = 2, \'dropped\' = 3)') AS unknown,
    3600000 AS gap_ms, -- as in sql/360
    6378137 AS equator_m, -- equatorial radius of WGS84
    0.9966471893352525 AS axis_ratio, -- polar radius of WGS84, divided by the equatorial radius
    2 * 6371008.8 AS earth_diameter_m, -- mean diameter of the earth
    -- The place on the ellipsoid, in metres from the centre of the earth, of a reduced latitude and a longitude in radians.
    (angle, lng) -> (equator_m * cos(angle) * cos(lng), equator_m * cos(angle) * sin(lng), equator_m * axis_ratio * sin(angle)) AS place_of,
    -- The arc over the straight line between two places, metres.
    (place, place0) -> earth_diameter_m * asin(least(1., L2Distance(place, place0) / earth_diameter_m)) AS metres_between
SELECT
    *,
    arrayMap(
        (kind, began, ended, metres, part_at) -> if(kind = 'gap' AND (ended - began > gap_ms AND metres <= trip_m OR part_at = parked_at), stop, kind),
        kinds, begins_ms, ends_ms, ways, arrayEnumerate(kinds)) AS final_kinds
FROM
(
SELECT
    * EXCEPT (older, before_day, before_place, before_final_kind, before_trip_m, is_continued),
    if(is_after_gap AND ends_ms[first_at] - before_ms > gap_ms AND gap_m <= trip_m, first_at, 0) AS parked_at,
    -- If `before` is a single fix after a silence, that silence is parking if the fix is near the last fix of `older`.
    is_continued OR parked_at > 0 AND (before_final_kind = stop OR before_final_kind = unknown AND older.4 + 3 >= before_day AND before_ms - older.1 > gap_ms
        AND metres_between(before_place, older.6) <= before_trip_m) AS is_joined
FROM
(
SELECT
    * EXCEPT (first_angle, last_at, last_angle, last, before, before_kind),
    before_day + 1 = day AND first_at > 0 AND before_kind = kinds[first_at] AND before_ms = begins_ms[first_at] AND before_kind != 'gap' AS is_continued,
    before_day + 3 >= day AND first_at > 0 AND kinds[first_at] = 'gap' AND begins_ms[first_at] = ends_ms[first_at] AS is_after_gap,
    is_after_gap * metres_between(place_of(first_angle, radians(to_lngs[first_at] / 1e7)), before_place) AS gap_m
FROM
(
    SELECT
        *,
        -- The end of the row: time, latitude and longitude of the last fix; day; kind of the last part; place of the last fix; kind of the last
        -- part with parking as a stop, or `unknown` if the row is a single fix after a silence; trip_m.
        (ends_ms[last_at], to_lats[last_at], to_lngs[last_at], day, kinds[last_at], place_of(last_angle, radians(to_lngs[last_at] / 1e7)),
            multiIf(kinds[last_at] != 'gap', kinds[last_at], first_at = last_at AND begins_ms[last_at] = ends_ms[last_at], unknown,
                ends_ms[last_at] - begins_ms[last_at] > gap_ms AND ways[last_at] <= trip_m, stop, kinds[last_at]), trip_m) AS last,
        -- The ends of the two rows before. Rows whose fixes were all dropped have no end.
        lagInFrame(last, 1) OVER in_order AS before, lagInFrame(last, 2) OVER in_order AS older,
        before.1 AS before_ms, before.2 AS before_lat_e7, before.3 AS before_lng_e7, before.4 AS before_day, before.5 AS before_kind,
        before.6 AS before_place, before.7 AS before_final_kind, before.8 AS before_trip_m
    FROM
    (
        SELECT
            toString(driver_id) AS driver_id, day, trip_m, derived, parts.quarter AS quarters, parts.piece AS pieces, parts.kind AS kinds,
            parts.began_ms AS begins_ms, parts.ended_ms AS ends_ms, parts.metres AS ways, parts.fixes AS counts,
            parts.speed_count AS speed_counts, parts.speed_max AS speeds,
            parts.lat_e7 AS lats, parts.lng_e7 AS lngs, parts.to_lat_e7 AS to_lats, parts.to_lng_e7 AS to_lngs,
            arrayFirstIndex(kind -> kind != 'dropped', kinds) AS first_at, arrayLastIndex(kind -> kind != 'dropped', kinds) AS last_at,
            -- Reduced latitudes, radians.
            atan(axis_ratio * tan(radians(to_lats[first_at] / 1e7))) AS first_angle, atan(axis_ratio * tan(radians(to_lats[last_at] / 1e7))) AS last_angle
        FROM {database}.driver_days_state{all} FINAL
        WHERE day >= toDate({since:String}) AND day <= toDate({until:String}) AND notEmpty(parts.kind)
            AND ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
    )
    WINDOW in_order AS (PARTITION BY driver_id, last_at > 0 ORDER BY day ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)
)
)
)
SETTINGS -- the first five shorten the planning (sql/360)
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    query_plan_execute_functions_after_sorting = 0, query_plan_merge_expressions = 0,
    optimize_move_to_prewhere_if_final = 1
COMMENT 'driver_days(driver, since, until)'
