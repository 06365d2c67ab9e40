-- Episodes (trips, stops and gaps) in the order of time. A silence that ends where it began is a stop. It is one episode together with any stop
-- directly before or after it. Episodes that overlap the window are returned whole, up to three UTC days beyond it. A piece is the portion of a
-- trip, stop or gap in one UTC day; driver_days returns it as one or more parts. The place of a stop is that of its piece with the most fixes.
CREATE OR REPLACE VIEW {database}_ask.episodes{on_cluster} AS
WITH
    parseDateTime64BestEffort({from:String}, 3, {tz:String}) AS since,
    parseDateTime64BestEffort({to:String}, 3, {tz:String}) AS until
SELECT
    driver_id, CAST(any(piece_kind), 'String') AS kind,
    fromUnixTimestamp64Milli(min(piece_began), {tz:String}) AS began,
    fromUnixTimestamp64Milli(max(piece_ended), {tz:String}) AS ended,
    (max(piece_ended) - min(piece_began)) / 1000 AS seconds,
    sumIf(piece_metres, piece_kind = 'trip') AS metres, sumIf(piece_metres, piece_kind = 'gap') AS untracked_m,
    sum(piece_fixes) AS fixes,
    if(kind = 'stop', argMax(from_lat, (piece_fixes, piece_ended - piece_began)), argMin(from_lat, piece_began)) / 1e7 AS lat,
    if(kind = 'stop', argMax(from_lng, (piece_fixes, piece_ended - piece_began)), argMin(from_lng, piece_began)) / 1e7 AS lng,
    if(kind = 'stop', lat, argMax(piece_to_lat, piece_ended) / 1e7) AS to_lat, if(kind = 'stop', lng, argMax(piece_to_lng, piece_ended) / 1e7) AS to_lng,
    max(piece_speed) AS speed_max
FROM
(
    SELECT *, sum(NOT continues) OVER (PARTITION BY driver_id ORDER BY day, piece ROWS UNBOUNDED PRECEDING) AS episode
    FROM
    (
        SELECT
            *,
            piece_kind != 'gap' AND lagInFrame((piece_kind, piece_ended)) OVER (PARTITION BY driver_id ORDER BY day, piece ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
                = (piece_kind, piece_began) AS continues
        FROM
        (
        SELECT
            driver_id, day, piece, any(final_kind) AS piece_kind,
            -- began_earlier: the piece is the rest of a gap that began on an earlier day, so its start is the last fix before that gap.
            any(is_after_gap) AND piece = first_piece AS began_earlier,
            if(began_earlier, any(before_ms), min(began_ms)) AS piece_began, max(ended_ms) AS piece_ended,
            if(began_earlier, any(gap_m), sum(part_metres)) AS piece_metres, sum(part_fixes) AS piece_fixes,
            if(began_earlier, any(before_lat_e7), argMin(lat_e7, began_ms)) AS from_lat,
            if(began_earlier, any(before_lng_e7), argMin(lng_e7, began_ms)) AS from_lng,
            argMax(to_lat_e7, ended_ms) AS piece_to_lat, argMax(to_lng_e7, ended_ms) AS piece_to_lng,
            if(sum(speed_count) = 0, NULL, toFloat32(max(speed) / 100)) AS piece_speed
        FROM {database}_ask.driver_days(
            driver = {driver:String},
            since = toString(toDate32(parseDateTime64BestEffort({from:String}, 3, {tz:String}), 'UTC') - 3),
            until = toString(toDate32(parseDateTime64BestEffort({to:String}, 3, {tz:String}), 'UTC') + 3))
        ARRAY JOIN
            pieces AS piece, final_kinds AS final_kind, begins_ms AS began_ms, ends_ms AS ended_ms, ways AS part_metres, counts AS part_fixes, speed_counts AS speed_count,
            speeds AS speed, lats AS lat_e7, lngs AS lng_e7, to_lats AS to_lat_e7, to_lngs AS to_lng_e7
        WHERE final_kind != 'dropped'
        GROUP BY driver_id, day, piece, pieces[first_at] AS first_piece
        )
    )
)
GROUP BY driver_id, episode
HAVING (kind != 'gap' OR max(piece_ended) > min(piece_began) OR untracked_m > 0) AND ended > since AND began < until
SETTINGS -- these shorten the planning (sql/360)
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    query_plan_execute_functions_after_sorting = 0, query_plan_merge_expressions = 0
COMMENT 'episodes(driver, from, to, tz)'
