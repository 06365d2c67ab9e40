-- Rows of driver_days_state, each with its connection to the last row before it, if that is at most three days earlier. `days` and `episodes`
-- read this view. since and until are UTC dates. Each array of `parts` is a column of its own, so a query reads only those that it needs.
--   ways           Length of each part, metres.
--   final_kinds    Kind of each part, but 'stop' for parking: a silence that ended where it began.
--   first_at       Index of the first part that is not dropped, 0 if there is none.
--   before_…       The last fix of the row before.
--   is_after_gap   The first part is the rest of a gap that began on an earlier day, gap_m metres before.
--   is_parked      That gap is parking.
--   is_joined      The first part continues the last trip or stop of the row before.
-- ClickHouse plans each function of a parameterised view twice, which takes longer than reading a day. So what a row has of its own is stored
-- (sql/353), and the next step uses a result by its name instead of repeating the expression. Kinds stay enums, because arrays of strings are slow.
CREATE OR REPLACE VIEW {database}_ask.driver_days{on_cluster} AS
WITH
    3600000 AS gap_ms, -- as in sql/360
    2 * 6371008.8 AS earth_diameter_m, -- mean diameter of the earth
    ['stop']::Array(Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3)) AS parking_kind
SELECT
    * EXCEPT (computed_kinds),
    -- The kind of the part first_at becomes 'stop'. A lambda, called for each part, would take longer than the rest of the query.
    if(is_parked, arrayConcat(arraySlice(computed_kinds, 1, first_at - 1), parking_kind, arraySlice(computed_kinds, first_at + 1)), computed_kinds) AS final_kinds
FROM
(
    SELECT
        * EXCEPT (first_fix, before, older),
        is_after_gap AND first_fix.ms - before_ms > gap_ms AND gap_m <= trip_m AS is_parked,
        -- If `before` is a single fix after a silence, that silence is parking if the fix is near the last fix of `older`.
        if(is_after_gap,
            is_parked AND (before.kind = 'stop' OR before.kind = 'dropped' AND older.day + 3 >= before.day AND before_ms - older.ms > gap_ms
                AND earth_diameter_m * asin(least(1., L2Distance(before.place, older.place) / earth_diameter_m)) <= before.trip_m),
            before.day + 1 = day AND before.kind = first_fix.kind AND before_ms = first_fix.ms AND before.kind IN ('trip', 'stop')) AS is_joined
    FROM
    (
        SELECT
            *, before.ms AS before_ms, before.lat_e7 AS before_lat_e7, before.lng_e7 AS before_lng_e7,
            first_fix.is_after_silence AND before.day + 3 >= day AS is_after_gap,
            -- The arc over the straight line between the two places, metres.
            is_after_gap * earth_diameter_m * asin(least(1., L2Distance(first_fix.place, before.place) / earth_diameter_m)) AS gap_m
        FROM
        (
            SELECT
                toString(driver_id) AS driver_id, day, trip_m, derived, parts.quarter AS quarters, parts.piece AS pieces, parts.kind AS kinds,
                parts.began_ms AS begins_ms, parts.ended_ms AS ends_ms, parts.metres AS ways, parts.fixes AS counts,
                parts.speed_count AS speed_counts, parts.speed_max AS speeds,
                parts.lat_e7 AS lats, parts.lng_e7 AS lngs, parts.to_lat_e7 AS to_lats, parts.to_lng_e7 AS to_lngs,
                final_kinds AS computed_kinds, first_at, first_fix,
                -- The ends of the two rows before. Rows whose fixes were all dropped have no end.
                lagInFrame(last_fix, 1) OVER in_order AS before, lagInFrame(last_fix, 2) OVER in_order AS older
            FROM {database}.driver_days_state{all} FINAL
            WHERE day >= toDate({since:String}) AND day <= toDate({until:String}) AND notEmpty(parts.kind)
                AND ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            WINDOW in_order AS (PARTITION BY driver_id, first_at > 0 ORDER BY day ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)
        )
    )
)
SETTINGS -- the first five shorten the planning (sql/360)
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    query_plan_execute_functions_after_sorting = 0, query_plan_merge_expressions = 0,
    optimize_move_to_prewhere_if_final = 1
COMMENT 'driver_days(driver, since, until)'
