-- The one definition of trips, stops and distances. Every five minutes it is applied to the days of drivers that were touched since.
--   stop   Looked at every 15 s, the driver stays within 100 m of where the stop began, for 180 s or more. The first fix farther away ends it.
--   gap    3,600 s without a fix, or a way longer than 100 m and 100 m more for each second: nobody knows the way.
--   trip   All the rest. A fix in a stop counts as at the stop's place: the mean of its first 180 s. metres is the length of this way.
-- Two kinds of fixes are dropped, because one wrong fix must not ruin a day: inaccurate ones (acc above 200 m), and jumps: the ways to and from
-- a jump are as long as a gap's, and the way without it is not.
--
-- Every UTC day is computed alone, from its fixes and two hours on both sides, so the result does not depend on what was touched. The first
-- fix of a day begins a new stop or trip. The way over midnight is measured from fix to fix and divided by time; the driver stands still
-- there if everything within 180 s of midnight is within 100 m of the next day's first fix. So a midnight costs a driver at most 200 m.
--
-- A refresh takes days of 5 million rows, the days touched last first; more than one day's rows always. Days touched in the ten minutes
-- before they were computed are computed again: an insert may have been committed while the fixes were read.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.driver_days_mv{on_cluster}
REFRESH EVERY 5 MINUTE APPEND TO {database}.driver_days_state AS
WITH
    3600000 AS gap_ms,
    180000 AS stop_ms,
    100 AS stop_m,
    15000 AS look_ms,
    100 AS jump_m,
    0.1 AS jump_m_per_ms,
    2000 AS acc_dm_max,
    86400000 AS day_ms,
    900000 AS quarter_ms,
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m, -- its mean diameter
    (xs, first) -> arrayPopBack(arrayPushFront(xs, first)) AS before,
    (xs, last) -> arrayPopFront(arrayPushBack(xs, last)) AS after,
    (xs, keep) -> arrayFilter((one, k) -> k, xs, keep) AS kept,
    (dx, dy, dz) -> dx * dx + dy * dy + dz * dz AS squared,
    -- Straight lines through the earth since the element before, squared. 0 for the first.
    (xs, ys, zs) -> arrayMap((dx, dy, dz) -> squared(dx, dy, dz), arrayDifference(xs), arrayDifference(ys), arrayDifference(zs)) AS ways_between,
    (way, ms) -> way > pow(jump_m + jump_m_per_ms * ms, 2) AS is_impossible,
    -- Of each stretch of fixes, of which every other is a stop, the stop's value for each of its fixes.
    (values, lengths) -> arrayFlatten(arrayMap((n, value) -> arrayWithConstant(n, value), lengths, arrayFlatten(arrayMap(value -> [0., value], arrayPushBack(values, 0.))))) AS spread,
    (own, stretch, stops) -> arrayMap((one, n, stop) -> if(n % 2 = 0, stop, one), own, stretch, stops) AS at_stops,
    wanted AS
    (
        SELECT driver_id, day, inserted
        FROM
        (
            SELECT driver_id, day, max(found) AS inserted, max(touched) AS touched_until, inserted != max(done) AS is_missing
            FROM
            (
                SELECT driver_id, day, sum(rows) AS found, toUInt64(0) AS done, max(touched_at) AS touched, toDateTime64(0, 3, 'UTC') AS done_at
                FROM {database}.touched GROUP BY driver_id, day
                UNION ALL
                SELECT driver_id, day, 0, rows, toDateTime64(0, 3, 'UTC'), computed_at FROM {database}.driver_days_state
            )
            GROUP BY driver_id, day
            HAVING inserted > 0 AND (is_missing OR max(done_at) < touched_until + INTERVAL 10 MINUTE)
        )
        QUALIFY sum(inserted) OVER (ORDER BY is_missing DESC, touched_until DESC, day, driver_id ROWS UNBOUNDED PRECEDING) - inserted < 5000000
    ),
    collected AS
    (
        SELECT driver_id, day, toInt64(day) * day_ms AS day_began, inserted, fix
        FROM
        (
            SELECT driver_id, day, arraySort(groupArray((ms, seq, lat_e7, lng_e7, speed_cms, acc_dm))) AS fix
            FROM
            (
                SELECT
                    driver_id, arrayJoin(arrayDistinct([toDate(ts - INTERVAL 2 HOUR), toDate(ts + INTERVAL 2 HOUR)])) AS day,
                    toUnixTimestamp64Milli(ts) AS ms, seq, lat_e7, lng_e7, speed_cms, acc_dm
                FROM {database}.positions FINAL
                WHERE (toDate(ts), driver_id) IN (SELECT day + shift, driver_id FROM wanted ARRAY JOIN [-1, 0, 1] AS shift)
            )
            WHERE (driver_id, day) IN (SELECT driver_id, day FROM wanted)
            GROUP BY driver_id, day
        ) AS fixes
        INNER JOIN wanted USING (driver_id, day)
    ),
    -- Each step is a subquery of its own: as aliases of one SELECT their texts grow by each other, and planning takes seconds.
    judged AS
    (
        SELECT
            *,
            arrayMap(acc_dm -> acc_dm = 65535 OR acc_dm <= acc_dm_max, fix.6) AS is_accurate,
            arrayMap((s, s0) -> if(s0 > 0 AND s > s0, s - s0 - 1, 0), fix.2, before(fix.2, 0)) AS fix_lost
        FROM collected
    ),
    accurate AS
    (
        SELECT
            driver_id, day, day_began, inserted, kept(fix.1, is_accurate) AS all_ms, kept(fix.3, is_accurate) AS all_lat, kept(fix.4, is_accurate) AS all_lng,
            kept(fix.5, is_accurate) AS all_speed, kept(fix.2, is_accurate) AS all_seq, kept(fix_lost, is_accurate) AS all_lost,
            arrayFilter((ms, lost, ok) -> NOT ok, fix.1, fix_lost, is_accurate) AS vague_ms,
            arrayFilter((lost, ok) -> NOT ok, fix_lost, is_accurate) AS vague_lost,
            arrayFilter((seq, ok) -> NOT ok, fix.2, is_accurate) AS vague_seq,
            arrayFilter((lat, ok) -> NOT ok, fix.3, is_accurate) AS vague_lat, arrayFilter((lng, ok) -> NOT ok, fix.4, is_accurate) AS vague_lng,
            arrayMap(l -> equator_m / sqrt(1 - e2 * pow(sin(radians(l / 1e7)), 2)), all_lat) AS curve
        FROM judged
    ),
    on_axes AS
    (
        SELECT
            *,
            arrayMap((r, a, b) -> r * cos(radians(a / 1e7)) * cos(radians(b / 1e7)), curve, all_lat, all_lng) AS all_x,
            arrayMap((r, a, b) -> r * cos(radians(a / 1e7)) * sin(radians(b / 1e7)), curve, all_lat, all_lng) AS all_y,
            arrayMap((r, a) -> r * (1 - e2) * sin(radians(a / 1e7)), curve, all_lat) AS all_z
        FROM accurate
    ),
    leaping AS
    (
        SELECT *, arrayMap((way, t) -> t <= gap_ms AND is_impossible(way, t), ways_between(all_x, all_y, all_z), arrayDifference(all_ms)) AS is_leap
        FROM on_axes
    ),
    jumping AS
    (
        SELECT
            *,
            if(has(is_leap, 1), arrayMap(
                (leap, leap_on, t, t0, x, x0, y, y0, z, z0) -> leap AND leap_on AND NOT is_impossible(squared(x - x0, y - y0, z - z0), t - t0),
                is_leap, after(is_leap, 0), after(all_ms, 0), before(all_ms, 0),
                after(all_x, 0), before(all_x, 0), after(all_y, 0), before(all_y, 0), after(all_z, 0), before(all_z, 0)), is_leap) AS is_jump
        FROM leaping
    ),
    good AS
    (
        SELECT
            driver_id, day, day_began, inserted, arrayMap(jump -> NOT jump, is_jump) AS is_good,
            kept(all_ms, is_good) AS ms, kept(all_lat, is_good) AS lat, kept(all_lng, is_good) AS lng, kept(all_speed, is_good) AS speed,
            kept(all_lost, is_good) AS lost, kept(all_x, is_good) AS x, kept(all_y, is_good) AS y, kept(all_z, is_good) AS z,
            arrayConcat(vague_ms, kept(all_ms, is_jump)) AS dropped_ms, arrayConcat(vague_lost, kept(all_lost, is_jump)) AS dropped_lost,
            arrayConcat(vague_seq, kept(all_seq, is_jump)) AS dropped_seq,
            arrayConcat(vague_lat, kept(all_lat, is_jump)) AS dropped_lat, arrayConcat(vague_lng, kept(all_lng, is_jump)) AS dropped_lng
        FROM jumping
    ),
    timed AS
    (
        SELECT
            *,
            arrayDifference(ms) AS time,
            ways_between(x, y, z) AS way,
            arrayFirstIndex(m -> m >= day_began, ms) AS first_at,
            arrayFirstIndex(m -> m >= day_began + day_ms, ms) AS next_at
        FROM good
    ),
    sampled AS
    (
        SELECT
            *,
            arrayMap(
                (m, t, i) -> m >= day_began AND m < day_began + day_ms AND (i = first_at OR intDiv(m, look_ms) != intDiv(m - t, look_ms)),
                ms, time, arrayEnumerate(ms)) AS is_look,
            x[first_at] AS first_x, y[first_at] AS first_y, z[first_at] AS first_z,
            x[next_at] AS next_x, y[next_at] AS next_y, z[next_at] AS next_z
        FROM timed
    ),
    looked AS
    (
        SELECT
            *,
            kept(ms, is_look) AS look_at_ms, kept(x, is_look) AS look_x, kept(y, is_look) AS look_y, kept(z, is_look) AS look_z,
            kept(arrayMap(t -> t > gap_ms, time), is_look) AS look_is_new, kept(arrayMap(i -> toInt64(i), arrayEnumerate(ms)), is_look) AS look_fix
        FROM sampled
    ),
    -- Each stop: its first and last fix, its first look, and how many looks there are in its first 180 s. One look more ends the last.
    folded AS
    (
        SELECT
            *,
            arrayFold(
                (s, m, lx, ly, lz, is_new, fix_at, look_at) -> if(
                    is_new OR squared(lx - s.1, ly - s.2, lz - s.3) > stop_m * stop_m,
                    (lx, ly, lz, m, m, fix_at, fix_at, look_at, toInt64(1),
                        if(s.5 - s.4 >= stop_ms, arrayPushBack(s.10, (s.6, s.7, s.8, s.9)), s.10)),
                    (s.1, s.2, s.3, s.4, m, s.6, fix_at, s.8, s.9 + (m - s.4 <= stop_ms), s.10)),
                arrayPushBack(look_at_ms, 0), arrayPushBack(look_x, 0.), arrayPushBack(look_y, 0.), arrayPushBack(look_z, 0.),
                arrayPushBack(look_is_new, 1), arrayPushBack(look_fix, 0),
                arrayMap(i -> toInt64(i), arrayEnumerate(arrayPushBack(look_fix, 0))),
                (0., 0., 0., toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), CAST([], 'Array(Tuple(Int64, Int64, Int64, Int64))'))
            ).10 AS stops
        FROM looked
    ),
    -- Fixes without a stop, those of a stop, fixes without one, those of a stop, ..., fixes without one.
    stretched AS
    (
        SELECT
            *,
            arrayFlatten(arrayMap(
                (last, next, first, end) -> [next - last - 1, end - first + 1],
                arrayPushFront(stops.2, 0), arrayPushBack(stops.1, toInt64(length(ms)) + 1), arrayPushBack(stops.1, 1), arrayPushBack(stops.2, 0))) AS lengths,
            arrayMap((first, count) -> (toUInt64(first), toUInt64(count)), stops.3, stops.4) AS ranges
        FROM folded
    ),
    averaged AS
    (
        SELECT
            *,
            arrayFlatten(arrayMap((n, i) -> arrayWithConstant(n, i), lengths, arrayEnumerate(lengths))) AS stretch,
            arrayReduceInRanges('avg', ranges, look_x) AS stop_x, arrayReduceInRanges('avg', ranges, look_y) AS stop_y,
            arrayReduceInRanges('avg', ranges, look_z) AS stop_z
        FROM stretched
    ),
    placed AS
    (
        SELECT
            *,
            at_stops(x, stretch, spread(stop_x, lengths)) AS place_x,
            at_stops(y, stretch, spread(stop_y, lengths)) AS place_y,
            at_stops(z, stretch, spread(stop_z, lengths)) AS place_z,
            NOT arrayExists((m, fx, fy, fz) -> abs(m - day_began) <= stop_ms AND squared(fx - first_x, fy - first_y, fz - first_z) > stop_m * stop_m,
                ms, x, y, z) AS is_still_first,
            NOT arrayExists((m, fx, fy, fz) -> abs(m - day_began - day_ms) <= stop_ms AND squared(fx - next_x, fy - next_y, fz - next_z) > stop_m * stop_m,
                ms, x, y, z) AS is_still_last,
            arrayMap((m, t) -> intDiv(m, day_ms) != intDiv(m - t, day_ms), ms, time) AS is_over_midnight
        FROM averaged
    ),
    -- From each fix to the next, with the kinds of driver_days_state.
    classed AS
    (
        SELECT
            *,
            arrayMap(
                (i, m, t, line, over, run, run0) -> multiIf(
                    i = 1 OR t > gap_ms OR is_impossible(line, t), 0,
                    over, if(line <= stop_m * stop_m AND if(m >= day_began + day_ms, is_still_last, is_still_first), 2, 1),
                    run % 2 = 0 AND run = run0, 2,
                    1),
                arrayEnumerate(ms), ms, time, way, is_over_midnight, stretch, before(stretch, 0)) AS kind
        FROM placed
    ),
    measured AS
    (
        SELECT
            *,
            arrayMap(
                (k, m0, over, line, line_of_places) -> if(k = 2 OR k = 0 AND m0 < day_began, 0.,
                    earth_m * asin(least(1., sqrt(if(k = 1 AND NOT over, line_of_places, line)) / earth_m))),
                kind, before(ms, 0), is_over_midnight, way, ways_between(place_x, place_y, place_z)) AS metres,
            arrayCumSum(arrayMap((k, k0) -> k != k0 OR k = 0, kind, before(kind, 0))) AS piece,
            length(ms) + length(dropped_ms) AS legs
        FROM classed
    ),
    -- What is dropped is a leg without a length.
    legs AS
    (
        SELECT
            driver_id, day, day_began, inserted, leg_kind, leg_from_ms, leg_ms, leg_lost, leg_speed, leg_metres, leg_piece,
            leg_lat, leg_lng, leg_to_lat, leg_to_lng, leg_x, leg_y, leg_z, leg_at
        FROM measured
        ARRAY JOIN
            arrayConcat(kind, arrayMap(m -> 3, dropped_ms)) AS leg_kind,
            arrayConcat(before(ms, 0), dropped_ms) AS leg_from_ms, arrayConcat(ms, dropped_ms) AS leg_ms,
            arrayConcat(lost, dropped_lost) AS leg_lost, arrayConcat(speed, arrayMap(m -> 65535, dropped_ms)) AS leg_speed,
            arrayResize(metres, legs) AS leg_metres, arrayConcat(piece, dropped_seq) AS leg_piece,
            arrayConcat(before(lat, lat[1]), dropped_lat) AS leg_lat, arrayConcat(before(lng, lng[1]), dropped_lng) AS leg_lng,
            arrayConcat(lat, dropped_lat) AS leg_to_lat, arrayConcat(lng, dropped_lng) AS leg_to_lng,
            arrayResize(place_x, legs) AS leg_x, arrayResize(place_y, legs) AS leg_y, arrayResize(place_z, legs) AS leg_z, range(legs) AS leg_at
    ),
    -- Legs that lie outside the day stay, in the quarter 0: a day without fixes gets a row, too.
    clipped AS
    (
        SELECT
            *,
            if(leg_kind IN (0, 3), if(leg_from_ms >= day_began, leg_from_ms, leg_ms), greatest(leg_from_ms, day_began)) AS first_ms,
            least(leg_ms, day_began + day_ms) AS last_ms,
            leg_ms >= day_began AND leg_ms < day_began + day_ms
                OR leg_kind IN (1, 2) AND leg_from_ms < day_began + day_ms AND leg_ms > day_began AS is_inside
        FROM legs
    ),
    divided AS
    (
        SELECT
            *,
            arrayJoin(multiIf(
                NOT is_inside, [toInt64(0)],
                leg_kind IN (0, 3) OR intDiv(first_ms, quarter_ms) = intDiv(leg_ms, quarter_ms), [intDiv(leg_ms, quarter_ms)],
                range(intDiv(first_ms, quarter_ms), intDiv(least(leg_ms, day_began + day_ms - 1), quarter_ms) + 1))) AS quarter
        FROM clipped
    ),
    shared AS
    (
        SELECT
            *,
            (driver_id, day, quarter, if(is_inside, leg_piece, 0), leg_kind = 3, if(leg_kind = 3, (leg_ms, leg_lat, leg_lng), (0, 0, 0))) AS part_key,
            quarter = intDiv(leg_ms, quarter_ms) AS is_end,
            greatest(first_ms, if(leg_kind IN (1, 2), quarter * quarter_ms, 0)) AS part_began_ms, least(last_ms, (quarter + 1) * quarter_ms) AS part_ended_ms,
            if(leg_kind IN (0, 3) OR leg_from_ms = leg_ms, quarter = intDiv(leg_ms, quarter_ms),
                (least(last_ms, (quarter + 1) * quarter_ms) - greatest(first_ms, quarter * quarter_ms)) / (leg_ms - leg_from_ms)) AS share
        FROM divided
    ),
    parts AS
    (
        SELECT
            part_key.1 AS driver_id, part_key.2 AS day, part_key.3 AS quarter, part_key.4 AS piece, any(inserted) AS inserted_rows, any(leg_kind) AS part_kind,
            min(part_began_ms) AS began_ms, max(part_ended_ms) AS ended_ms,
            toFloat32(sum(leg_metres * share)) AS metres, countIf(is_end) AS fixes, sumIf(leg_lost, is_end) AS missing,
            countIf(is_end AND leg_speed != 65535) AS speed_count, sumIf(leg_speed, is_end AND leg_speed != 65535) AS speed_sum,
            maxIf(leg_speed, is_end AND leg_speed != 65535) AS speed_max,
            argMin((leg_lat, leg_lng, leg_x, leg_y, leg_z), (first_ms, leg_at)) AS begin, argMax((leg_to_lat, leg_to_lng), (last_ms, leg_at)) AS end
        FROM shared
        GROUP BY part_key -- of several keys the analyzer hashes the whole query for each
    )
SELECT
    day, driver_id,
    arraySort(groupArrayIf((
        quarter, piece, part_kind, began_ms, ended_ms, metres, fixes, missing, speed_count, speed_sum, speed_max,
        if(part_kind = 2, toInt32(round(1e7 * degrees(atan2(begin.5, (1 - e2) * sqrt(begin.3 * begin.3 + begin.4 * begin.4))))), begin.1),
        if(part_kind = 2, toInt32(round(1e7 * degrees(atan2(begin.4, begin.3)))), begin.2), end.1, end.2), quarter > 0)) AS parts,
    any(inserted_rows) AS rows,
    now64(3) AS computed_at
FROM parts
GROUP BY driver_id, day
SETTINGS max_insert_threads = 1, min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 100000000000, group_by_two_level_threshold = 0, group_by_two_level_threshold_bytes = 0, do_not_merge_across_partitions_select_final = 1
