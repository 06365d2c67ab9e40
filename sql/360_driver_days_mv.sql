-- The only definition of trips, stops and distances (docs/trips.md). Every five minutes, a refresh computes each driver's days that have new
-- rows since the day's last computation, and all days of drivers whose rules have changed. radius_m, stop_s and the other limits are columns
-- of trip_rules_in_force (sql/351). docs/trips.md explains the reasons, with pictures.
--
-- Words:
--   leg       The straight line between two consecutive fixes.
--   silence   More than 3,600 s without a fix.
--   parking   A silence that ends within trip_m of where it began. The views (sql/370) count it as a stop.
--   sample    The first fix of the day, of every 15-second span, and after a gap. Only samples decide where a driver stops.
--   slot      The fixes of 1 to 64 s, on about 37 m of the route. The mean of their positions is one point of the route.
--   step      The way from one sample to the next.
--   pace      A speed computed from two fixes, metres per second. A speed, in contrast, is what the device sends.
--
-- A run is a series of consecutive samples near the first of them. The place of a run is the mean of its samples in its first stop_s. A
-- gap ends a run. A sample belongs to the run if its distance to the run's first sample is at most
--     radius_m               if the fix before the sample is less than stop_s older
--     trip_m plus radius_m   if that fix is at least stop_s older, and at most trip_m away from the sample
--     trip_m                 if that fix is at least stop_s older, and farther away
--     1,000 m                if the device sends a speed of 0 at this sample and at the sample before, which is at most 30 s older. If
--                            the run is more than two minutes old, the distance must also be at most radius_m for each stop_s of its age: a
--                            driver who creeps through a jam sends speeds of 0, too, but moves on
-- If such a speed of 0 is sent farther away than 1,000 m, a new run begins, in which speeds of 0 have no effect.
--
-- A stop is one or more runs of at least 45 s each. It lasts for at least stop_s. An absence, the time between two runs, counts as a part of
-- the stop. The next run belongs to the stop so far if the absence is short and its place is near the place of the first run:
--     how many of the two last for stop_s   longest absence   largest distance
--     none                                  spike_s           half of radius_m
--     one                                   trip_s            radius_m
--     both                                  trip_s            trip_m
-- There are three exceptions:
--   1. An absence in which the driver moves for 60 s ends the stop, however short the absence is.
--   2. If the runs since the last stop are too short for a stop of their own, the next run may also belong to that last stop.
--   3. A stop may be shorter than stop_s, and consist of a single run below 45 s, if it fills the time between two silences or is next to
--      parking.
--
-- A gap is a silence, or a leg longer than 100 m plus the distance at speed_max. The route of a gap is unknown. Some devices send times without
-- seconds, so for this purpose a leg between two fixes at the same whole minute counts as a minute long.
--
-- A trip is everything else. Its length in metres is that of the line through the places of stops and, between stops, through the points of
-- the route. If the line turns in the same direction at both ends of a leg, the route was a curve, and longer than the leg. The lines through
-- the two neighbouring legs meet in a corner: three quarters of the detour through that corner are added. If the line also turns by similar
-- angles before and after the leg, the route was an arc: half of each turn belongs to the neighbouring leg, and a third of the detour is
-- added. In between, these shares change in proportion to the evenness of the four turns. Nothing is added if a neighbouring leg is shorter
-- than 32 m and took clearly less time (corner_time_share): such a device sends a fix wherever it turns, so its legs cut no corners.
--
-- Two sorts of fixes are dropped: inaccurate ones, whose acc is above acc_max, and jumps. A fix is a jump for one of four reasons:
--   1. It can be neither reached nor left within speed_max, while the leg without it is possible.
--   2. It is the first fix after a silence, and the leg from it is faster than speed_max. The leg from the next fix takes at most an hour and
--      is not faster than speed_max. The next fix is nearer than this one to the last fix before the silence. For the very first fix, only
--      the speeds count.
--   3. It is a detour: more than 100 m away from the fixes before and after it. The two legs, there and back, together take at most two
--      minutes, and the direct line is shorter than 60 % of their length. Each leg is faster than 5 m/s plus one and a half times the pace
--      around them. That pace is the highest of three paces: of the direct line, of the leg before, and of the leg after. The leg before may
--      begin at another wrong fix, which makes its pace too high. So its pace counts as at most the higher of two other paces: straight
--      from the third fix before to the fix before, and from the fourth fix before to the third. The same applies to the leg after.
--   4. It is more than 100 m away from the fixes before and after it, which are within radius_m of each other, and the device sleeps or wakes
--      up. The device sleeps if it sends a speed of 0 at all three fixes, and both legs take at most two hours and are at most 1,000 m long. In
--      addition, the fix before must be within radius_m of its predecessor, or the fix after within radius_m of its successor. The device wakes
--      up if a silence precedes the fix, and the leg from the fix takes at most two minutes and is faster than 5 m/s plus one and a half times
--      the pace of the leg after it.
--
-- A speed that the device sends is false, and no mean or maximum uses it, if both neighbouring fixes
--   - are at most 60 s away,
--   - send less than a quarter of that speed, or no speed,
--   - are nearer than the braking distance from that speed at 8 m/s², and nearer than a quarter of the distance driven at that speed.
--
-- Every UTC day is computed on its own, from its fixes and those of two hours on both sides, so the result does not depend on the order of
-- computation. The first fix of a day begins a new stop or trip. The leg across midnight is measured from fix to fix, and divided between the
-- days by time. The driver stands still during this leg if it is at most radius_m long, and all fixes within stop_s of midnight are within
-- radius_m of the next day's first fix.
--
-- A refresh computes days until they have 5 million rows in total, but at least one day. Days with new rows come first, the most recently
-- touched before the others. Days that were touched in the ten minutes before their computation are computed again, because an insert may
-- have committed while the fixes were read.
--
-- How to read the query: each step adds columns to those of the step before. A column is an array with one element per fix, and a fix is an
-- index into these arrays. The short names in lambdas are values of the fix at hand:
--   i, m       its index; its time, epoch milliseconds
--   x, y, z    its coordinates
--   t, leg_m2  of the leg that ends at the fix: duration, milliseconds, and squared length, square metres (few comparisons need the root)
--   s, p       the speed that the device sends, centimetres per second, 65535 if none; a pace
-- The ending _prev means the fix before, _next the fix after, and a number at the end how many fixes before or after: t_next2 is t of the
-- second fix after.
ALTER TABLE {database}.driver_days_mv{on_cluster} MODIFY QUERY
WITH
    -- The name of a limit has its unit at the end or before _max: milliseconds, metres, centimetres per second, metres per second, seconds.
    -- Shares and corner_turn_max (radians) have no unit in their names.
    toInt64(3600000) AS gap_ms, -- a longer time without a fix is a silence
    15000 AS sampling_ms, -- length of the spans whose first fixes are samples
    100 AS jump_m, -- a shorter leg is neither impossible nor a jump
    toInt64(60000) AS minute_ms,
    120000 AS jump_ms_max, -- longest time there and back of a jump of kind 3, and longest leg from a jump of a device that wakes up
    10 AS zero_speed_cms, -- a lower speed sent counts as 0
    30000 AS zero_speed_ms, -- longest time between two samples whose speeds of 0 extend a run
    120000 AS creep_ms, -- age from which a run ends if its samples move on; before, noise may look like that
    1000 AS zero_speed_m, -- a speed of 0 counts up to this far from the first sample; if a device sends only 0 and moves farther, none counts
    45000 AS run_ms, -- shortest run that can be a stop or a part of one
    60000 AS false_speed_ms, -- longest time to the neighbouring fixes that can show that a sent speed is false
    8 AS brake_mps2, -- hardest braking and acceleration of a vehicle, metres per second squared
    7200000 AS asleep_ms_max, -- longest leg to or from a jump of a device that sleeps
    2.5 AS moving_mps, -- the driver moves at a sample if the pace over three steps is at least this; over one step, a wrong fix would be a move
    60000 AS moving_ms, -- an absence in which the driver moves for this long is a trip
    37 AS slot_m, -- length of the route in one slot
    64 AS slot_s_max, -- longest duration of a slot
    0.7 AS path_share, -- the pace that sets the duration of a slot is at least this share of the pace along three steps
    32 AS corner_leg_m, -- a shorter leg has no corner between its ends
    2.2 AS corner_turn_max, -- largest sum of the turns at both ends of a leg that belong to it, radians; where the route turns farther, no corner is added
    0.75 AS corner_share, -- share of the detour through the corner that is added, if the route turns only at the ends of the leg
    1 / 3 AS arc_share, -- the same on an arc: of the detour through the corner where two tangents of a circle meet, a third is the arc's
    0.9 AS corner_time_share, -- the device sends fixes at turns if a short neighbouring leg takes less than this share of the leg's time
    86400000 AS day_ms,
    900000 AS quarter_ms, -- a quarter of an hour
    6378137 AS equator_m, -- equatorial radius of WGS84
    0.0066943799901413165 AS e2, -- squared eccentricity of WGS84
    2 * 6371008.8 AS earth_diameter_m, -- mean diameter of the earth
    -- before: each element's predecessor, and `first` for the first element. after: each element's successor, and `last` for the last
    -- element. kept: the elements of xs whose counterpart in `keep` is true.
    (xs, first) -> arrayPopBack(arrayPushFront(xs, first)) AS before,
    (xs, last) -> arrayPopFront(arrayPushBack(xs, last)) AS after,
    (xs, keep) -> arrayFilter((element, is_kept) -> is_kept, xs, keep) AS kept,
    (dx, dy, dz) -> dx * dx + dy * dy + dz * dz AS squared_length,
    -- Squared lengths of the straight lines through the earth from the element before; 0 for the first element.
    (xs, ys, zs) -> arrayMap((dx, dy, dz) -> squared_length(dx, dy, dz), arrayDifference(xs), arrayDifference(ys), arrayDifference(zs)) AS squared_legs,
    (leg_m2, ms, mps) -> leg_m2 > pow(jump_m + mps / 1000 * ms, 2) AS is_impossible,
    -- Longest possible duration of a leg. Two fixes at the same whole minute come from a device or file without seconds: up to a minute may be
    -- between them.
    (ms, ended) -> if(ms = 0 AND ended % minute_ms = 0, minute_ms, ms) AS longest_ms,
    (leg_m2, ms) -> 1000 * sqrt(leg_m2) / greatest(ms, 1) AS pace,
    -- A stay is the runs joined so far. It is a stop if it lasts for stop_s. Runs and stays are the same tuple:
    --   1, 2      first and last fix
    --   3, 4, 5   coordinates of the place
    --   6, 7      times of the first and last sample
    --   8         whether it counts as a stop even if it is short
    --   9         time on the move, from the day's first sample to its end
    stay -> stay.7 - stay.6 AS duration_ms,
    (stay, long_ms) -> stay.8 OR duration_ms(stay) >= long_ms AS is_stop,
    -- belong: whether the run is a part of the stay's stop. `moved`: time on the move, from the day's first sample to the start of the run.
    -- long_ms is stop_s, and near_m is radius_m.
    (stay, run, moved, long_ms, trip_m, trip_ms, near_m, spike_ms) -> moved - stay.9 < moving_ms
        AND run.6 - stay.7 <= if(greatest(duration_ms(stay), duration_ms(run)) >= long_ms, trip_ms, spike_ms)
        AND squared_length(run.3 - stay.3, run.4 - stay.4, run.5 - stay.5) <= pow(multiIf(least(duration_ms(stay), duration_ms(run)) >= long_ms, trip_m,
            greatest(duration_ms(stay), duration_ms(run)) >= long_ms, near_m, near_m / 2), 2) AS belong,
    (stay, run) -> (stay.1, run.2, stay.3, stay.4, stay.5, stay.6, run.7, stay.8 OR run.8, run.9) AS joined,
    -- A stretch is the fixes between two stops (odd numbers), or those of one stop (even numbers). spread: the stop's value for each fix of a
    -- stop, and 0 for other fixes. at_stops: the stop's value for each fix of a stop, and the fix's own value for other fixes.
    (values, lengths) -> arrayFlatten(arrayMap((n, value) -> arrayWithConstant(n, value), lengths, arrayFlatten(arrayMap(value -> [0., value], arrayPushBack(values, 0.))))) AS spread,
    (fix_values, stretches, stop_values) -> arrayMap((value, n, stop) -> if(n % 2 = 0, stop, value), fix_values, stretches, stop_values) AS at_stops,
    (SELECT groupArray(rule) FROM {database}.trip_rules_in_force WHERE driver_id = '') AS fleet_rules,
    -- The TTL of positions has removed no fix of this day or of the day before it; of earlier days it may have. Without a TTL it is 1970-01-01.
    -- New rules do not apply to earlier days: they would be computed from a part of their fixes.
    (
        SELECT max(toUInt32OrZero(extractAll(engine_full, 'toIntervalDay.([0-9]+)')[-1])) FROM system.tables WHERE database = '{database}' AND name = 'positions'
    ) AS kept_days,
    if(kept_days = 0, toDate(0), toDate(now('UTC')) - kept_days + 2) AS first_kept_day,
    -- The days that this refresh computes, each with the rules of its driver. touched_rows: the rows inserted so far, as in `touched`.
    due_days AS
    (
        SELECT driver_id, day, touched_rows, rule
        FROM
        (
            SELECT
                driver_id, day, touched_rows, last_touched_at, has_new_rows, if(driver_rules.rule.1 = 0, fleet_rules[1], driver_rules.rule) AS rule,
                has_new_rows OR last_computed_at < last_touched_at + INTERVAL 10 MINUTE OR last_rules != rule.1 AND day >= first_kept_day AS is_due
            FROM
            (
                SELECT driver_id, day, max(rows_now) AS touched_rows, max(newest_touch) AS last_touched_at, touched_rows > max(rows_computed) AS has_new_rows,
                    max(computed_until) AS last_computed_at, argMax(rules, computed_until) AS last_rules
                FROM
                (
                    SELECT driver_id, day, sum(rows) AS rows_now, toUInt64(0) AS rows_computed, max(touched_at) AS newest_touch, toDateTime64(0, 3, 'UTC') AS computed_until,
                        toUInt64(0) AS rules
                    FROM {database}.touched GROUP BY driver_id, day
                    UNION ALL
                    SELECT driver_id, day, 0, rows, toDateTime64(0, 3, 'UTC'), computed_at, rules FROM {database}.driver_days_state
                )
                GROUP BY driver_id, day
                HAVING touched_rows > 0 -- rows of touched expire two days before fixes: a day that loses fixes keeps its figures
            ) AS days
            LEFT JOIN (SELECT driver_id, rule FROM {database}.trip_rules_in_force WHERE driver_id != '') AS driver_rules USING (driver_id)
        )
        WHERE is_due
        QUALIFY sum(touched_rows) OVER (ORDER BY has_new_rows DESC, last_touched_at DESC, day, driver_id ROWS UNBOUNDED PRECEDING) - touched_rows < 5000000
    ),
    -- One row for each day: its fixes and those of two hours on both sides, sorted by time.
    collected AS
    (
        SELECT
            driver_id, day, toInt64(day) * day_ms AS day_began, touched_rows, fix, rule.1 AS rules,
            rule.2 AS speed_max, rule.3 AS radius_m, rule.4 * 1000 AS stop_ms, rule.5 AS trip_m, rule.6 * 1000 AS trip_ms, rule.7 * 1000 AS spike_ms,
            rule.8 * 10 AS acc_dm_max
        FROM
        (
            SELECT driver_id, day, arraySort(groupArray((ms, seq, lat_e7, lng_e7, speed_cms, acc_dm))) AS fix
            FROM
            (
                SELECT
                    driver_id, arrayJoin(arrayDistinct([toDate(ts - INTERVAL 2 HOUR), toDate(ts + INTERVAL 2 HOUR)])) AS day,
                    toUnixTimestamp64Milli(ts) AS ms, seq, lat_e7, lng_e7, speed_cms, acc_dm
                FROM {database}.positions FINAL
                WHERE (toDate(ts), driver_id) IN (SELECT day + shift, driver_id FROM due_days ARRAY JOIN [-1, 0, 1] AS shift)
            )
            WHERE (driver_id, day) IN (SELECT driver_id, day FROM due_days)
            GROUP BY driver_id, day
        ) AS fixes
        -- Each use of due_days evaluates it again, so a day of `fixes` may no longer be due: it has no match then, and touched_rows is 0. LEFT JOIN,
        -- because planning the runtime filter of an INNER JOIN would take two fifths of the time of all planning.
        LEFT JOIN due_days USING (driver_id, day)
        WHERE touched_rows > 0
    ),
    -- Each step is a subquery of its own. As aliases of one SELECT, the expressions would contain each other, and planning would take seconds.
    with_accuracy AS
    (
        SELECT
            *,
            arrayMap(acc_dm -> acc_dm = 65535 OR acc_dm <= acc_dm_max, fix.6) AS is_accurate,
            arrayMap((seq, seq_prev) -> if(seq_prev > 0 AND seq > seq_prev, seq - seq_prev - 1, 0), fix.2, before(fix.2, 0)) AS fix_missing
        FROM collected
    ),
    -- all_…: values of the accurate fixes, jumps included. missing: how many sequence numbers are missing before a fix. curvature_m: radius of
    -- curvature in the prime vertical.
    accurate AS
    (
        SELECT
            * EXCEPT (fix, is_accurate, fix_missing), kept(fix.1, is_accurate) AS all_ms, kept(fix.3, is_accurate) AS all_lat, kept(fix.4, is_accurate) AS all_lng,
            kept(fix.5, is_accurate) AS all_speed, kept(fix.2, is_accurate) AS all_seq, kept(fix_missing, is_accurate) AS all_missing,
            arrayFilter((ms, missing, ok) -> NOT ok, fix.1, fix_missing, is_accurate) AS inaccurate_ms,
            arrayFilter((missing, ok) -> NOT ok, fix_missing, is_accurate) AS inaccurate_missing,
            arrayFilter((seq, ok) -> NOT ok, fix.2, is_accurate) AS inaccurate_seq,
            arrayFilter((lat, ok) -> NOT ok, fix.3, is_accurate) AS inaccurate_lat, arrayFilter((lng, ok) -> NOT ok, fix.4, is_accurate) AS inaccurate_lng,
            arrayMap(lat_e7 -> equator_m / sqrt(1 - e2 * pow(sin(radians(lat_e7 / 1e7)), 2)), all_lat) AS curvature_m
        FROM with_accuracy
    ),
    -- Cartesian coordinates, metres from the centre of the earth: x and y in the plane of the equator, z to the north.
    with_coordinates AS
    (
        SELECT
            * EXCEPT curvature_m,
            arrayMap((radius, lat_e7, lng_e7) -> radius * cos(radians(lat_e7 / 1e7)) * cos(radians(lng_e7 / 1e7)), curvature_m, all_lat, all_lng) AS all_x,
            arrayMap((radius, lat_e7, lng_e7) -> radius * cos(radians(lat_e7 / 1e7)) * sin(radians(lng_e7 / 1e7)), curvature_m, all_lat, all_lng) AS all_y,
            arrayMap((radius, lat_e7) -> radius * (1 - e2) * sin(radians(lat_e7 / 1e7)), curvature_m, all_lat) AS all_z
        FROM accurate
    ),
    with_all_legs AS
    (
        SELECT *, squared_legs(all_x, all_y, all_z) AS all_leg_m2, arrayDifference(all_ms) AS all_leg_ms FROM with_coordinates
    ),
    -- is_too_fast: the leg that ends at the fix is longer than 100 m plus the distance at speed_max, and is not a silence. is_far: that leg is
    -- longer than 100 m.
    with_fast_legs AS
    (
        SELECT
            *,
            arrayMap((leg_m2, t, m) -> t <= gap_ms AND is_impossible(leg_m2, longest_ms(t, m), speed_max), all_leg_m2, all_leg_ms, all_ms) AS is_too_fast,
            arrayMap(leg_m2 -> leg_m2 > jump_m * jump_m, all_leg_m2) AS is_far
        FROM with_all_legs
    ),
    -- The four kinds of jumps, numbered as at the top: is_jump_1_2, then is_jump_1_to_3, then is_jump, which has all four. Most days have no leg
    -- that is too fast or longer than 100 m, and so no jump. So each step first tests whether it has anything to do.
    with_candidates AS
    (
        SELECT
            *,
            if(has(is_too_fast, 1), arrayMap(
                (fast, fast_next, m_next, m_prev, x_next, x_prev, y_next, y_prev, z_next, z_prev, t, leg_m2, t_next2, fast_next2) -> fast_next AND if(t > gap_ms,
                    NOT fast_next2 AND t_next2 <= gap_ms AND squared_length(x_next - x_prev, y_next - y_prev, z_next - z_prev) < leg_m2,
                    fast AND NOT is_impossible(squared_length(x_next - x_prev, y_next - y_prev, z_next - z_prev), longest_ms(m_next - m_prev, m_next), speed_max)),
                is_too_fast, after(is_too_fast, 0), after(all_ms, 0), before(all_ms, 0),
                after(all_x, 0), before(all_x, all_x[2]), after(all_y, 0), before(all_y, all_y[2]), after(all_z, 0), before(all_z, all_z[2]),
                -- The very first fix counts as if a silence preceded it that began at the second fix's place, so that only the speeds decide.
                before(after(all_leg_ms, 0), gap_ms + 1), before(after(all_leg_m2, 0.), 1.),
                after(after(all_leg_ms, gap_ms + 1), 0), after(after(is_too_fast, 0), 0)), is_too_fast) AS is_jump_1_2,
            -- 1: candidate for kind 3. 2: candidate for kind 4, because the fixes before and after it are at one place. 3: candidate for both.
            if(has(is_far, 1), arrayMap(
                (leg_m2, leg_m2_next, t, t_next, x_next, x_prev, y_next, y_prev, z_next, z_prev) -> toUInt8((leg_m2 > jump_m * jump_m AND leg_m2_next > jump_m * jump_m) * (
                    (t + t_next <= jump_ms_max AND squared_length(x_next - x_prev, y_next - y_prev, z_next - z_prev) < pow(0.6 * (sqrt(leg_m2) + sqrt(leg_m2_next)), 2))
                        + 2 * (squared_length(x_next - x_prev, y_next - y_prev, z_next - z_prev) <= radius_m * radius_m))),
                all_leg_m2, after(all_leg_m2, 0.), all_leg_ms, after(all_leg_ms, 0),
                after(all_x, 0), before(all_x, 0), after(all_y, 0), before(all_y, 0), after(all_z, 0), before(all_z, 0)), is_far) AS candidate
        FROM with_fast_legs
    ),
    -- leg_pace: the pace of the leg that ends at each fix. pair_pace: the pace from the second fix before straight to the fix; 1e9 if there is
    -- no such fix. Without a candidate for kind 3, no step reads these two columns, so they are filled with all_x.
    with_paces AS
    (
        SELECT
            *,
            if(has(candidate, 1) OR has(candidate, 3), arrayMap((leg_m2, t) -> pace(leg_m2, t), all_leg_m2, all_leg_ms), all_x) AS leg_pace,
            if(has(candidate, 1) OR has(candidate, 3), arrayMap(
                (i, x, x_prev2, y, y_prev2, z, z_prev2, t, t_prev) -> if(i < 3, 1e9, pace(squared_length(x - x_prev2, y - y_prev2, z - z_prev2), t + t_prev)),
                arrayEnumerate(all_ms), all_x, before(before(all_x, 0), 0), all_y, before(before(all_y, 0), 0), all_z, before(before(all_z, 0), 0),
                all_leg_ms, before(all_leg_ms, 0)), all_x) AS pair_pace
        FROM with_candidates
    ),
    with_jumps_1_to_3 AS
    (
        SELECT
            * EXCEPT (leg_pace, pair_pace),
            if(has(candidate, 1) OR has(candidate, 3), arrayMap(
                (jump, code, p, p_next, p_prev, pair_prev, p_prev3, p_next2, pair_next3, p_next4, t, t_next, x_next, x_prev, y_next, y_prev, z_next, z_prev) -> jump OR code % 2 = 1 AND
                    least(p, p_next) > 1.5 * greatest(least(p_prev, greatest(pair_prev, p_prev3)), least(p_next2, greatest(pair_next3, p_next4)),
                        pace(squared_length(x_next - x_prev, y_next - y_prev, z_next - z_prev), t + t_next)) + 5,
                is_jump_1_2, candidate, leg_pace, after(leg_pace, 0.), before(leg_pace, 0.), before(pair_pace, 1e9), before(before(before(leg_pace, 0.), 0.), 0.),
                after(after(leg_pace, 0.), 0.), after(after(after(pair_pace, 1e9), 1e9), 1e9), after(after(after(after(leg_pace, 0.), 0.), 0.), 0.),
                all_leg_ms, after(all_leg_ms, 0), after(all_x, 0), before(all_x, 0), after(all_y, 0), before(all_y, 0), after(all_z, 0), before(all_z, 0)), is_jump_1_2) AS is_jump_1_to_3
        FROM with_paces
    ),
    with_jumps AS
    (
        SELECT
            *,
            if(has(candidate, 2) OR has(candidate, 3), arrayMap(
                (jump, code, leg_m2, t, leg_m2_next, t_next, leg_m2_next2, t_next2, s, s_prev, s_next, outer_m2) -> jump OR code >= 2 AND (
                    greatest(s, s_prev, s_next) < zero_speed_cms AND greatest(leg_m2, leg_m2_next) <= zero_speed_m * zero_speed_m AND greatest(t, t_next) <= asleep_ms_max
                        AND outer_m2 <= radius_m * radius_m
                    OR t > gap_ms AND t_next <= jump_ms_max AND pace(leg_m2_next, t_next) > 1.5 * pace(leg_m2_next2, t_next2) + 5),
                is_jump_1_to_3, candidate, all_leg_m2, all_leg_ms, after(all_leg_m2, 0.), after(all_leg_ms, 0), after(after(all_leg_m2, 0.), 0.), after(after(all_leg_ms, 0), 0),
                all_speed, before(all_speed, 0), after(all_speed, 0),
                -- outer_m2: the shorter of the leg to the fix before and the leg from the fix after.
                arrayMap((leg_m2_prev, leg_m2_next2) -> least(leg_m2_prev, leg_m2_next2), before(before(after(all_leg_m2, 0.), inf), inf), after(after(all_leg_m2, inf), inf))), is_jump_1_to_3) AS is_jump
        FROM with_jumps_1_to_3
    ),
    -- The fixes that are not dropped, and the dropped ones: inaccurate fixes and jumps.
    without_jumps AS
    (
        SELECT
            driver_id, day, day_began, touched_rows, rules, speed_max, radius_m, stop_ms, trip_m, trip_ms, spike_ms, arrayMap(jump -> NOT jump, is_jump) AS is_good,
            kept(all_ms, is_good) AS ms, kept(all_lat, is_good) AS lat, kept(all_lng, is_good) AS lng, kept(all_speed, is_good) AS speed,
            kept(all_missing, is_good) AS missing, kept(all_x, is_good) AS x, kept(all_y, is_good) AS y, kept(all_z, is_good) AS z,
            arrayConcat(inaccurate_ms, kept(all_ms, is_jump)) AS dropped_ms, arrayConcat(inaccurate_missing, kept(all_missing, is_jump)) AS dropped_missing,
            arrayConcat(inaccurate_seq, kept(all_seq, is_jump)) AS dropped_seq,
            arrayConcat(inaccurate_lat, kept(all_lat, is_jump)) AS dropped_lat, arrayConcat(inaccurate_lng, kept(all_lng, is_jump)) AS dropped_lng
        FROM with_jumps
    ),
    -- first_index: index of the first fix since the day began, 0 if there is none. next_index: that of the next day's first fix. is_gap: the leg
    -- that ends at the fix is a silence or impossible.
    with_legs AS
    (
        SELECT
            * EXCEPT is_good,
            arrayDifference(ms) AS leg_ms,
            squared_legs(x, y, z) AS leg_m2,
            arrayMap((leg_m2, t, m) -> t > gap_ms OR is_impossible(leg_m2, longest_ms(t, m), speed_max), leg_m2, leg_ms, ms) AS is_gap,
            arrayFirstIndex(m -> m >= day_began, ms) AS first_index,
            arrayFirstIndex(m -> m >= day_began + day_ms, ms) AS next_index,
            if(next_index = 0, toUInt32(length(ms)) + 1, next_index) AS end_index -- the index after the day's last fix
        FROM without_jumps
    ),
    with_samples AS
    (
        SELECT
            *,
            arrayMap(
                (m, t, gap, i) -> i >= first_index AND i < end_index AND first_index > 0 AND (
                    i = first_index OR intDiv(m, sampling_ms) != intDiv(m - t, sampling_ms) OR gap),
                ms, leg_ms, is_gap, arrayEnumerate(ms)) AS is_sample,
            x[first_index] AS first_x, y[first_index] AS first_y, z[first_index] AS first_z,
            x[next_index] AS next_x, y[next_index] AS next_y, z[next_index] AS next_z,
            -- Speeds sent, without the false ones. 65535: unknown or false.
            arrayMap((s, s_prev, s_next, leg_m2, leg_m2_next, t, t_next) -> if(s != 65535 AND greatest(t, t_next) <= false_speed_ms AND 4 * greatest(s_prev % 65535, s_next % 65535) < s
                AND greatest(leg_m2, leg_m2_next) < pow(least(s * s / (20000 * brake_mps2), s * least(t, t_next) / 400000), 2), 65535, s),
                speed, before(speed, 0), after(speed, 0), leg_m2, after(leg_m2, inf), leg_ms, after(leg_ms, 0)) AS true_speed
        FROM with_legs
    ),
    samples AS
    (
        SELECT
            * EXCEPT is_sample,
            kept(ms, is_sample) AS sample_at_ms, kept(x, is_sample) AS sample_x, kept(y, is_sample) AS sample_y, kept(z, is_sample) AS sample_z,
            kept(leg_ms, is_sample) AS sample_leg_ms, kept(leg_m2, is_sample) AS sample_leg_m2, kept(speed, is_sample) AS sample_speed,
            kept(is_gap, is_sample) AS sample_follows_gap, kept(arrayEnumerate(ms), is_sample) AS sample_fix
        FROM with_samples
    ),
    -- is_zero_speed_credible: the device has sent another speed than 0, or has stayed within zero_speed_m. sample_step_m: distance from the
    -- sample before.
    with_sample_steps AS
    (
        SELECT
            *,
            arrayExists(s -> s != 65535 AND s >= zero_speed_cms, sample_speed)
                OR NOT arrayExists((x, y, z) -> squared_length(x - sample_x[1], y - sample_y[1], z - sample_z[1]) > zero_speed_m * zero_speed_m, sample_x, sample_y, sample_z) AS is_zero_speed_credible,
            arrayMap(leg_m2 -> sqrt(leg_m2), squared_legs(sample_x, sample_y, sample_z)) AS sample_step_m
        FROM samples
    ),
    -- sample_pace: the pace around a sample, from the sample before it to the second sample after it. sample_limit_m2: squared distance from the
    -- first sample of a run up to which a sample belongs to the run, without regard to speeds of 0.
    with_sample_paces AS
    (
        SELECT
            *,
            arrayMap(s -> is_zero_speed_credible AND s < zero_speed_cms, sample_speed) AS sends_zero,
            arrayMap((t, leg_m2) -> pow(if(t < stop_ms, radius_m, trip_m + if(leg_m2 <= trip_m * trip_m, radius_m, 0)), 2), sample_leg_ms, sample_leg_m2) AS sample_limit_m2,
            arrayMap(
                (x_next2, x_prev, y_next2, y_prev, z_next2, z_prev, m_next2, m_prev) -> pace(squared_length(x_next2 - x_prev, y_next2 - y_prev, z_next2 - z_prev), m_next2 - m_prev),
                after(after(sample_x, sample_x[-1]), sample_x[-1]), before(sample_x, sample_x[1]), after(after(sample_y, sample_y[-1]), sample_y[-1]), before(sample_y, sample_y[1]),
                after(after(sample_z, sample_z[-1]), sample_z[-1]), before(sample_z, sample_z[1]),
                after(after(sample_at_ms, sample_at_ms[-1]), sample_at_ms[-1]), before(sample_at_ms, sample_at_ms[1])) AS sample_pace,
            -- The pace between consecutive samples, if the device sends no speed.
            arrayMap(
                (leg_m2, t, s) -> if(s = 65535 AND t >= 5000 AND t <= gap_ms AND NOT is_impossible(leg_m2, t, speed_max), pace(leg_m2, t), 0.),
                squared_legs(sample_x, sample_y, sample_z), arrayDifference(sample_at_ms), sample_speed) AS derived_pace
        FROM with_sample_steps
    ),
    -- Runs, found by going through the samples in their order. After each sample, `state` holds:
    --   1 to 3   place of the run's first sample
    --   4, 5     times of its first and last sample
    --   6, 7     its first and last fix
    --   8, 9     its first sample, and the number of samples in its first stop_s
    --   10       1: the run begins after a silence; 2: after parking; 3: where a speed of 0 was not believed; 0: elsewhere
    --   11       the runs before it that can be a stop or a part of one: those that are long enough, next to parking, or between two silences
    -- Each finished run has its first and last fix (if a gap or the end of the day ends the run: the last fix before that), its first sample,
    -- the number of samples in its first stop_s, whether it counts as a stop even if it is short, the times of its first and last sample, and
    -- its last sample.
    --
    -- begins: a gap precedes the sample, or the sample is the day's first. after_silence: a silence precedes the sample, or no fix
    -- precedes it. after_parking: that silence was parking. limit_m2: sample_limit_m2. zero_limit_m2: the limit that holds if speeds of 0
    -- are believed, for creep_ms; later, a driver who creeps on is not believed. An additional sample at the end finishes the last run.
    --
    -- slot_pace: sample_pace, but at least path_share of the pace along the steps.
    with_runs AS
    (
        SELECT
            * EXCEPT (derived_pace, sample_limit_m2, sample_step_m, sample_follows_gap),
            -- On a road that turns back, the straight line over three steps is short, but the steps are not.
            arrayMap(
                (p, step_m, step_m_next, step_m_next2, m_next2, m_prev) -> greatest(p, path_share * 1000 * (step_m + step_m_next + step_m_next2) / greatest(m_next2 - m_prev, 1)),
                sample_pace, sample_step_m, after(sample_step_m, 0.), after(after(sample_step_m, 0.), 0.),
                after(after(sample_at_ms, sample_at_ms[-1]), sample_at_ms[-1]), before(sample_at_ms, sample_at_ms[1])) AS slot_pace,
            arrayMax(derived_pace) AS derived_max,
            if(derived_max = 0, (CAST([], 'Array(UInt32)'), CAST([], 'Array(UInt16)')), arrayReduce('maxMap',
                arrayMap(m -> [toUInt32(intDiv(m, quarter_ms))], sample_at_ms), arrayMap(p -> [toUInt16(least(65534, p * 100))], derived_pace))) AS derived_maxima,
            arrayFold(
                (state, m, x, y, z, begins, limit_m2, zero_limit_m2, after_silence, after_parking, fix_index, sample_index) -> if(
                    begins OR squared_length(x - state.1, y - state.2, z - state.3) > if(state.10 = 3, limit_m2, greatest(limit_m2, least(
                        zero_limit_m2, if(m - state.4 <= creep_ms, zero_limit_m2, pow(radius_m * (m - state.4) / stop_ms, 2))))),
                    (x, y, z, m, m, fix_index, fix_index, sample_index, toInt64(1), if(begins, if(after_parking, 2, after_silence),
                            if(zero_limit_m2 > limit_m2 AND (state.10 = 3 OR squared_length(x - state.1, y - state.2, z - state.3) > zero_limit_m2), 3, 0)),
                        if(state.5 - state.4 >= run_ms OR state.10 = 2 OR begins AND (after_parking OR state.10 = 1 AND after_silence),
                            arrayPushBack(state.11, (
                                state.6, if(begins, fix_index - 1, state.7), state.8, state.9,
                                toUInt8(state.10 = 2 OR begins AND (after_parking OR state.10 = 1 AND after_silence)), state.4, state.5, sample_index - 1)),
                            state.11)),
                    (state.1, state.2, state.3, state.4, m, state.6, fix_index, state.8, state.9 + (m - state.4 <= stop_ms), state.10, state.11)),
                arrayPushBack(sample_at_ms, 0), arrayPushBack(sample_x, 0.), arrayPushBack(sample_y, 0.), arrayPushBack(sample_z, 0.),
                arrayPushBack(arrayMap((gap, i) -> gap OR i = first_index, sample_follows_gap, sample_fix), 1), arrayPushBack(sample_limit_m2, 0.),
                arrayPushBack(arrayMap((zero, zero_prev, t, limit_m2) -> if(zero AND zero_prev AND t <= zero_speed_ms, greatest(limit_m2, zero_speed_m * zero_speed_m), limit_m2),
                    sends_zero, before(sends_zero, 0), arrayDifference(sample_at_ms), sample_limit_m2), 0.),
                arrayMap((t, i) -> t > gap_ms OR i = 1, arrayPushBack(sample_leg_ms, if(next_index = 0, gap_ms + 1, leg_ms[next_index])), arrayPushBack(sample_fix, 0)),
                arrayMap((t, leg_m2, i) -> t > gap_ms AND leg_m2 <= trip_m * trip_m AND i > first_index, arrayPushBack(sample_leg_ms, 0), arrayPushBack(sample_leg_m2, 0.), arrayPushBack(sample_fix, 0)),
                arrayMap(i -> toInt64(i), arrayPushBack(sample_fix, end_index)), arrayMap(i -> toInt64(i), arrayEnumerate(arrayPushBack(sample_fix, 0))),
                (0., 0., 0., toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toUInt8(0), CAST([], 'Array(Tuple(Int64, Int64, Int64, Int64, UInt8, Int64, Int64, Int64))'))
            ).11 AS runs
        FROM with_sample_paces
    ),
    with_run_ranges AS
    (
        SELECT
            *,
            arrayMap((first, count) -> (toUInt64(first), toUInt64(count)), runs.3, runs.4) AS place_samples,
            -- The samples between the run before and this one. Like place_samples, each range is (index of its first element, length).
            arrayMap((first, last) -> (toUInt64(last + 1), toUInt64(first - last - 1)), runs.3, before(runs.8, 0)) AS absent_samples,
            arrayMap((p, t) -> if(p >= moving_mps AND t <= gap_ms, toInt64(t), toInt64(0)), sample_pace, arrayDifference(sample_at_ms)) AS sample_moving_ms
        FROM with_runs
    ),
    with_run_places AS
    (
        SELECT
            *,
            arrayReduceInRanges('avg', place_samples, sample_x) AS run_x, arrayReduceInRanges('avg', place_samples, sample_y) AS run_y,
            arrayReduceInRanges('avg', place_samples, sample_z) AS run_z,
            arrayReduceInRanges('sum', arrayMap((first, last) -> (toUInt64(first), toUInt64(last - first + 1)), runs.3, runs.8), sample_moving_ms) AS moving_inside_ms,
            arrayCumSum(arrayMap((absent, inside) -> absent + inside, arrayReduceInRanges('sum', absent_samples, sample_moving_ms), moving_inside_ms)) AS moved_until_end_ms
        FROM with_run_ranges
    ),
    -- Stops: runs that belong together, with their first and last fix and the place of the first run. `state` is the stay so far, and the stops
    -- before it. A run belongs to the stay so far or, if that is too short for a stop, to the last stop. An additional run at the end closes the
    -- last stop.
    with_stops AS
    (
        SELECT
            * EXCEPT (runs, place_samples, absent_samples, sample_moving_ms, moving_inside_ms, moved_until_end_ms, run_x, run_y, run_z, sample_at_ms, sample_x, sample_y, sample_z, sample_leg_ms, sample_leg_m2, sample_speed, sends_zero),
            arrayFold(
                (state, run, moved) -> multiIf(
                    belong(state.1, run, moved, stop_ms, trip_m, trip_ms, radius_m, spike_ms), (joined(state.1, run), state.2),
                    NOT is_stop(state.1, stop_ms) AND belong(state.2[-1], run, moved, stop_ms, trip_m, trip_ms, radius_m, spike_ms), (joined(state.2[-1], run), arrayPopBack(state.2)),
                    (run, if(is_stop(state.1, stop_ms), arrayPushBack(state.2, state.1), state.2))),
                arrayPushBack(arrayZip(runs.1, runs.2, run_x, run_y, run_z, runs.6, runs.7, runs.5, moved_until_end_ms), (0, 0, 0., 0., 0., 0, 0, 0, 0)),
                arrayPushBack(arrayMap((moved, inside) -> moved - inside, moved_until_end_ms, moving_inside_ms), 0),
                ((toInt64(0), toInt64(0), 0., 0., 0., toInt64(0), toInt64(0), toUInt8(0), toInt64(0)),
                    CAST([], 'Array(Tuple(Int64, Int64, Float64, Float64, Float64, Int64, Int64, UInt8, Int64))'))
            ).2 AS stops
        FROM with_run_places
    ),
    -- lengths: the number of fixes of each stretch. Stretches without a stop alternate with those of one stop. After the last stop comes the
    -- stretch up to the last fix, then an empty stretch.
    with_stretch_lengths AS
    (
        SELECT
            *,
            arrayFlatten(arrayMap(
                (last_prev, first, stop_first, stop_last) -> [first - last_prev - 1, stop_last - stop_first + 1],
                arrayPushFront(stops.2, 0), arrayPushBack(stops.1, toInt64(length(ms)) + 1), arrayPushBack(stops.1, 1), arrayPushBack(stops.2, 0))) AS lengths,
            -- Duration of each fix's slot, milliseconds. It is the same from one sample to the next.
            arrayFlatten(arrayMap(
                (sample, sample_next, slot_ms) -> arrayWithConstant(sample_next - sample, slot_ms),
                arrayConcat([1], sample_fix, [end_index]), arrayConcat(sample_fix, [end_index, toUInt32(length(ms)) + 1]),
                arrayConcat([1000], arrayMap(p -> multiIf(p >= slot_m, 1000, p * 2 >= slot_m, 2000, p * 4 >= slot_m, 4000, p * 8 >= slot_m, 8000,
                    p * 16 >= slot_m, 16000, p * 32 >= slot_m, 32000, slot_s_max * 1000), slot_pace), [1000]))) AS slot_ms
        FROM with_stops
    ),
    with_stretches AS
    (
        SELECT * EXCEPT (sample_fix, sample_pace, slot_pace), arrayFlatten(arrayMap((n, i) -> arrayWithConstant(n, i), lengths, arrayEnumerate(lengths))) AS stretch FROM with_stretch_lengths
    ),
    with_places AS
    (
        SELECT
            * EXCEPT (x, y, z),
            at_stops(x, stretch, spread(stops.3, lengths)) AS place_x,
            at_stops(y, stretch, spread(stops.4, lengths)) AS place_y,
            at_stops(z, stretch, spread(stops.5, lengths)) AS place_z,
            NOT arrayExists((m, x, y, z) -> abs(m - day_began) <= stop_ms AND squared_length(x - first_x, y - first_y, z - first_z) > radius_m * radius_m,
                ms, x, y, z) AS is_still_at_start,
            NOT arrayExists((m, x, y, z) -> abs(m - day_began - day_ms) <= stop_ms AND squared_length(x - next_x, y - next_y, z - next_z) > radius_m * radius_m,
                ms, x, y, z) AS is_still_at_end,
            arrayMap((m, t) -> intDiv(m, day_ms) != intDiv(m - t, day_ms), ms, leg_ms) AS crosses_midnight
        FROM with_stretches
    ),
    -- The kind of the leg that ends at each fix, as a number of the column parts.kind of driver_days_state: 0 gap, 1 trip, 2 stop.
    with_kinds AS
    (
        SELECT
            *,
            arrayMap(
                (i, m, gap, leg_m2, crosses, stretch, stretch_prev) -> multiIf(
                    i = 1 OR gap, 0,
                    crosses, if(leg_m2 <= radius_m * radius_m AND if(m >= day_began + day_ms, is_still_at_end, is_still_at_start), 2, 1),
                    stretch % 2 = 0 AND stretch = stretch_prev, 2,
                    1),
                arrayEnumerate(ms), ms, is_gap, leg_m2, crosses_midnight, stretch, before(stretch, 0)) AS kind
        FROM with_places
    ),
    with_trip_legs AS
    (
        SELECT *, arrayMap((kind, crosses) -> kind = 1 AND NOT crosses, kind, crosses_midnight) AS is_trip_leg FROM with_kinds
    ),
    -- is_point_start, is_point_end: the first and the last fix of each point. A point is a single fix, the fixes of a slot, or those of a stop
    -- in one quarter of an hour.
    with_point_starts AS
    (
        SELECT
            *,
            arrayMap(
                (on_trip, on_trip_prev, on_trip_next, stretch, stretch_prev, kind, kind_prev, crosses, crosses_prev, m, m_prev, slot, slot_prev) -> NOT (intDiv(m, quarter_ms) = intDiv(m_prev, quarter_ms) AND (
                    on_trip AND on_trip_prev AND on_trip_next AND stretch % 2 = 1 AND stretch_prev % 2 = 1 AND slot = slot_prev AND intDiv(m, slot) = intDiv(m_prev, slot)
                    OR kind = 2 AND kind_prev = 2 AND NOT crosses AND NOT crosses_prev)),
                is_trip_leg, before(is_trip_leg, 0), after(is_trip_leg, 0), stretch, before(stretch, 0), kind, before(kind, 0), crosses_midnight, before(crosses_midnight, 0),
                ms, before(ms, 0), slot_ms, before(slot_ms, 1)) AS is_point_start
        FROM with_trip_legs
    ),
    with_point_ends AS
    (
        SELECT *, after(is_point_start, 1) AS is_point_end, kept(arrayMap(i -> toInt64(i), arrayEnumerate(ms)), is_point_start) AS point_index FROM with_point_starts
    ),
    with_point_ranges AS
    (
        SELECT *, arrayMap((i, i_next) -> (toUInt64(i), toUInt64(i_next - i)), point_index, after(point_index, toInt64(length(ms)) + 1)) AS ranges FROM with_point_ends
    ),
    points AS
    (
        SELECT
            driver_id, day, day_began, touched_rows, rules, trip_m, derived_max, derived_maxima, dropped_ms, dropped_missing, dropped_seq, dropped_lat, dropped_lng,
            kept(kind, is_point_end) AS kind, kept(is_trip_leg, is_point_end) AS is_trip_leg, kept(crosses_midnight, is_point_end) AS crosses_midnight, kept(leg_m2, is_point_end) AS fix_leg_m2,
            kept(ms, is_point_end) AS point_ms, kept(lat, is_point_end) AS point_lat, kept(lng, is_point_end) AS point_lng,
            arrayMap(range -> toInt64(range.2), ranges) AS point_fixes,
            arrayReduceInRanges('sum', ranges, arrayMap(l -> toUInt32(l), missing)) AS missing,
            arrayReduceInRanges('sum', ranges, arrayMap(s -> toUInt32(s != 65535), true_speed)) AS speed_count,
            arrayReduceInRanges('sum', ranges, arrayMap(s -> if(s = 65535, 0, s), true_speed)) AS speed_sum,
            arrayReduceInRanges('max', ranges, arrayMap(s -> if(s = 65535, 0, s), true_speed)) AS sent_max,
            arrayReduceInRanges('avg', ranges, place_x) AS point_x, arrayReduceInRanges('avg', ranges, place_y) AS point_y,
            arrayReduceInRanges('avg', ranges, place_z) AS point_z
        FROM with_point_ranges
    ),
    with_point_legs AS
    (
        SELECT *, arrayDifference(point_x) AS dx, arrayDifference(point_y) AS dy, arrayDifference(point_z) AS dz FROM points
    ),
    with_point_leg_lengths AS
    (
        SELECT *, arrayMap((dx, dy, dz) -> squared_length(dx, dy, dz), dx, dy, dz) AS point_leg_m2, arrayDifference(point_ms) AS point_leg_ms FROM with_point_legs
    ),
    -- The turn at each point, from the leg that ends there to the next one; a turn to the left is positive.
    with_turns AS
    (
        SELECT
            *,
            arrayMap(
                (on_trip, on_trip_next, dx, dx_next, dy, dy_next, dz, dz_next, leg_m2, leg_m2_next, x, y, z) -> if(on_trip AND on_trip_next AND leg_m2 > 0 AND leg_m2_next > 0,
                    acos(greatest(-1., least(1., (dx * dx_next + dy * dy_next + dz * dz_next) / sqrt(leg_m2 * leg_m2_next))))
                    * sign((dy * dz_next - dz * dy_next) * x + (dz * dx_next - dx * dz_next) * y + (dx * dy_next - dy * dx_next) * z), 0.),
                is_trip_leg, after(is_trip_leg, 0), dx, after(dx, 0.), dy, after(dy, 0.), dz, after(dz, 0.), point_leg_m2, after(point_leg_m2, 0.), point_x, point_y, point_z) AS turn
        FROM with_point_leg_lengths
    ),
    -- evenness: 1 if the route turns by the same angle at both ends of the leg that ends at the point, and at the points before and after that
    -- leg, as on a circle. 0 if it turns in the other direction at one of these four points, or not at all.
    with_evenness AS
    (
        SELECT
            *,
            arrayMap(
                (turn_prev2, turn_prev, turn, turn_next) -> greatest(0., least(turn_prev2 * sign(turn), turn_prev * sign(turn), abs(turn), turn_next * sign(turn)))
                    / greatest(abs(turn_prev2), abs(turn_prev), abs(turn), abs(turn_next), 1e-9),
                before(before(turn, 0.), 0.), before(turn, 0.), turn, after(turn, 0.)) AS evenness
        FROM with_turns
    ),
    -- metres: the length of the leg that ends at each point, with the detour of a curve; point_leg_m2 is the leg between points, fix_leg_m2 that
    -- between fixes. piece: number of the trip, stop or gap within the day.
    with_metres AS
    (
        SELECT
            *,
            arrayMap(
                (kind, on_trip, m_prev, fix_leg_m2, leg_m2, leg_m2_prev, leg_m2_next, t, t_prev, t_next, turn_prev, turn, even) -> if(kind = 2 OR kind = 0 AND m_prev < day_began, 0.,
                    earth_diameter_m * asin(least(1., sqrt(if(on_trip, leg_m2, fix_leg_m2)) / earth_diameter_m))
                    * if(on_trip AND leg_m2 >= corner_leg_m * corner_leg_m AND turn_prev * turn > 0 AND (1 - even / 2) * abs(turn_prev + turn) < corner_turn_max
                            AND (leg_m2_prev >= corner_leg_m * corner_leg_m OR t_prev >= corner_time_share * t)
                            AND (leg_m2_next >= corner_leg_m * corner_leg_m OR t_next >= corner_time_share * t),
                        -- On an arc, half of each turn belongs to the neighbouring leg.
                        1 + (even * arc_share + (1 - even) * corner_share)
                            * ((sin((1 - even / 2) * abs(turn_prev)) + sin((1 - even / 2) * abs(turn))) / sin((1 - even / 2) * abs(turn_prev + turn)) - 1), 1.)),
                kind, is_trip_leg, before(point_ms, 0), fix_leg_m2, point_leg_m2, before(point_leg_m2, 0.), after(point_leg_m2, 0.),
                point_leg_ms, before(point_leg_ms, 0), after(point_leg_ms, 0), before(turn, 0.), turn, evenness) AS metres,
            arrayCumSum(arrayMap((kind, kind_prev) -> kind != kind_prev OR kind = 0, kind, before(kind, 0))) AS piece,
            length(point_ms) + length(dropped_ms) AS leg_total
        FROM with_evenness
    ),
    -- One row per leg. A dropped fix is a leg of kind 3 without a length; its piece is its seq.
    legs AS
    (
        SELECT
            driver_id, day, day_began, touched_rows, rules, trip_m, derived_max, leg_kind, leg_from_ms, leg_to_ms, leg_fixes, leg_missing, leg_speed_count, leg_speed_sum, leg_speed,
            leg_metres, leg_piece, leg_lat, leg_lng, leg_to_lat, leg_to_lng, leg_x, leg_y, leg_z, leg_number, leg_maxima
        FROM with_metres
        ARRAY JOIN
            arrayConcat(kind, arrayMap(m -> 3, dropped_ms)) AS leg_kind,
            arrayConcat(before(point_ms, 0), dropped_ms) AS leg_from_ms, arrayConcat(point_ms, dropped_ms) AS leg_to_ms,
            arrayConcat(point_fixes, arrayMap(m -> 1, dropped_ms)) AS leg_fixes,
            arrayConcat(arrayMap(l -> toInt64(l), missing), dropped_missing) AS leg_missing, arrayResize(speed_count, leg_total) AS leg_speed_count, arrayResize(speed_sum, leg_total) AS leg_speed_sum,
            arrayResize(sent_max, leg_total) AS leg_speed,
            arrayResize(metres, leg_total) AS leg_metres, arrayConcat(piece, dropped_seq) AS leg_piece,
            arrayConcat(before(point_lat, point_lat[1]), dropped_lat) AS leg_lat, arrayConcat(before(point_lng, point_lng[1]), dropped_lng) AS leg_lng,
            arrayConcat(point_lat, dropped_lat) AS leg_to_lat, arrayConcat(point_lng, dropped_lng) AS leg_to_lng,
            arrayResize(point_x, leg_total) AS leg_x, arrayResize(point_y, leg_total) AS leg_y, arrayResize(point_z, leg_total) AS leg_z, range(leg_total) AS leg_number,
            arrayResize([derived_maxima], leg_total) AS leg_maxima -- the maxima of the day, at its first leg only
    ),
    -- The part of each leg that is inside the day. Legs outside the day count in the quarter 0, so that a day without fixes gets a row, too.
    clipped_legs AS
    (
        SELECT
            *,
            if(leg_kind IN (0, 3), if(leg_from_ms >= day_began, leg_from_ms, leg_to_ms), greatest(leg_from_ms, day_began)) AS first_ms,
            least(leg_to_ms, day_began + day_ms) AS last_ms,
            leg_to_ms >= day_began AND leg_to_ms < day_began + day_ms
                OR leg_kind IN (1, 2) AND leg_from_ms < day_began + day_ms AND leg_to_ms > day_began AS is_inside
        FROM legs
    ),
    -- A leg that spans several quarters of an hour has a row for each of them.
    legs_by_quarter AS
    (
        SELECT
            *,
            arrayJoin(multiIf(
                NOT is_inside, [toInt64(0)],
                leg_kind IN (0, 3) OR intDiv(first_ms, quarter_ms) = intDiv(leg_to_ms, quarter_ms), [intDiv(leg_to_ms, quarter_ms)],
                range(intDiv(first_ms, quarter_ms), intDiv(least(leg_to_ms, day_began + day_ms - 1), quarter_ms) + 1))) AS quarter
        FROM clipped_legs
    ),
    -- share: the part of the leg's time that is in the quarter. The fixes of a leg count in the quarter in which it ends.
    with_shares AS
    (
        SELECT
            *,
            (driver_id, day, quarter, if(is_inside, leg_piece, 0), leg_kind = 3, if(leg_kind = 3, (leg_to_ms, leg_lat, leg_lng), (0, 0, 0))) AS part_key,
            quarter = intDiv(leg_to_ms, quarter_ms) AS ends_in_quarter,
            greatest(first_ms, if(leg_kind IN (1, 2), quarter * quarter_ms, 0)) AS part_began_ms, least(last_ms, (quarter + 1) * quarter_ms) AS part_ended_ms,
            if(leg_kind IN (0, 3) OR leg_from_ms = leg_to_ms, quarter = intDiv(leg_to_ms, quarter_ms),
                (least(last_ms, (quarter + 1) * quarter_ms) - greatest(first_ms, quarter * quarter_ms)) / (leg_to_ms - leg_from_ms)) AS share
        FROM legs_by_quarter
    ),
    parts AS
    (
        SELECT
            part_key.1 AS driver_id, part_key.2 AS day, part_key.3 AS quarter, part_key.4 AS piece, any(touched_rows) AS inserted_rows, any(rules) AS rules_hash,
            any(derived_max) AS derived_of_day, toFloat32(any(trip_m)) AS trip_m_of_day, any(leg_kind) AS part_kind,
            min(part_began_ms) AS began_ms, max(part_ended_ms) AS ended_ms,
            toFloat32(sum(leg_metres * share)) AS metres, sumIf(leg_fixes, ends_in_quarter) AS fixes, sumIf(leg_missing, ends_in_quarter) AS missing,
            sumIf(leg_speed_count, ends_in_quarter) AS speed_count, sumIf(leg_speed_sum, ends_in_quarter) AS speed_sum, maxIf(leg_speed, ends_in_quarter) AS speed_max,
            argMax(leg_maxima, length(leg_maxima.1)) AS part_maxima,
            argMin((leg_lat, leg_lng, leg_x, leg_y, leg_z), (first_ms, leg_number)) AS begin, argMax((leg_to_lat, leg_to_lng), (last_ms, leg_number)) AS end
        FROM with_shares
        GROUP BY part_key -- a single key, because the analyzer hashes the whole query for each key
    )
SELECT
    day, driver_id,
    arraySort(groupArrayIf((
        quarter, piece, part_kind, began_ms, ended_ms, metres, fixes, missing, speed_count, speed_sum, speed_max,
        if(part_kind = 2, toInt32(round(1e7 * degrees(atan2(begin.5, (1 - e2) * sqrt(begin.3 * begin.3 + begin.4 * begin.4))))), begin.1),
        if(part_kind = 2, toInt32(round(1e7 * degrees(atan2(begin.4, begin.3)))), begin.2), end.1, end.2), quarter > 0)) AS parts,
    any(inserted_rows) AS rows,
    any(rules_hash) AS rules, any(trip_m_of_day) AS trip_m, toUInt16(least(65534, any(derived_of_day) * 100)) AS derived_cms,
    argMax(part_maxima, length(part_maxima.1)) AS derived,
    now64(3) AS computed_at
FROM parts
GROUP BY driver_id, day
SETTINGS join_use_nulls = 0, max_insert_threads = 1, min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 100000000000, group_by_two_level_threshold = 0, group_by_two_level_threshold_bytes = 0, do_not_merge_across_partitions_select_final = 1,
    -- These steps of the analyzer hash or copy the whole query for each expression. Disabling them halves the planning time.
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    query_plan_execute_functions_after_sorting = 0, query_plan_merge_expressions = 0,
    query_plan_convert_outer_join_to_inner_join = 0 -- the condition on touched_rows would make the LEFT JOIN an INNER JOIN
