-- The only definition of trips, stops and distances (docs/trips.md). Every five minutes, a refresh computes each driver's days that have new
-- rows since the day's last computation, and all days of drivers whose rules have changed. radius_m, stop_s and the other limits are columns
-- of trip_rules_in_force (sql/351). A leg is the straight line between two consecutive fixes.
--   look   The first fix of the day, and the first fix of every 15-second span. Only looks decide where a driver stops.
--   run    Consecutive looks within radius_m of the first look of the run. For a look after stop_s or more without a fix, the limit is not radius_m
--          but trip_m, or trip_m plus radius_m if the look is within trip_m of the fix before it. A look within 1,000 m of the first one also
--          belongs to the run if the device reports that it stands: it sends a speed of 0 at this look and at the look before, at most 30 s
--          earlier. If it reports a speed of 0 farther away, a new run begins, in which speeds of 0 have no effect.
--          The place of a run is the mean of its looks in the first stop_s.
--   stop   One or more runs of at least 45 s each. An absence is the time between two runs. The next run belongs to the stop if the absence
--          before it, and the distance from its place to the place of the first run, are within these limits:
--            neither the stop so far nor the run lasts for stop_s   spike_s, half of radius_m
--            one of them does                                       trip_s, radius_m
--            both do                                                trip_s, trip_m
--          An absence in which the driver moves for 60 s ends the stop, even if the absence is short. If the stop so far is too short for a
--          stop, the next run may also belong to the stop before it. A stop lasts for at least stop_s, absences included. A shorter stop,
--          even a single run below 45 s, counts if it fills the time between two silences or is next to parking.
--   gap    More than 3,600 s without a fix (a silence), or a leg longer than 100 m plus the distance at speed_max: the route is unknown. Two
--          fixes at the same whole minute may be a minute apart, because some devices send no seconds. A silence that ends within trip_m of
--          where it began is parking, which the views (sql/370) count as a stop.
--   trip   Everything else. metres is the length of the line through the places of stops and, between stops, through means of fixes. Each
--          mean covers about 37 m of the route, and 1 to 64 s. If the line turns in the same direction at both ends of a leg, the route was
--          a curve, which is longer than the leg: three quarters of the detour through the point where the neighbouring legs, extended,
--          meet are added. Nothing is added if a neighbouring leg is shorter than 32 m and took clearly less time (bend_time) than the leg: such a
--          device sends a fix wherever it turns.
-- Two kinds of fixes are dropped: inaccurate ones (acc above acc_max), and jumps. The limit spike_s concerns absences from a stop, not jumps.
-- There are four kinds of jumps:
--   1. A fix that can be neither reached nor left within speed_max, while the leg without it is possible.
--   2. The first fix after a silence, if the leg from it is faster than speed_max, but the leg from the next fix takes at most an hour and is
--      not faster, and the next fix is nearer to the last fix before the silence than this one. The very first fix needs only the speeds.
--   3. A fix more than 100 m away from the fixes before and after it, if the way there and back takes at most two minutes, the direct way is
--      shorter than 60 % of the way there and back, and both legs are faster than 5 m/s plus one and a half times the speed around them.
--      The speed around them is the highest of three speeds: of the direct way, of the leg before, and of the leg after. The leg before,
--      from the second fix before to the first one before, may begin at another wrong fix, which makes its speed too high. So its speed counts
--      as at most the higher of two others: from the third fix before straight to the first one before, and from the fourth to the third. The
--      same applies to the leg after.
--   4. A fix more than 100 m away from the fixes before and after it, which are within radius_m of each other, if the device sleeps or wakes
--      up. A device sleeps if it sends a speed of 0 at all three, each at most two hours after the one before; the fix is at most 1,000 m
--      away; and the fix before it is within radius_m of its predecessor, or the fix after it within radius_m of its successor. A device
--      wakes up if a silence precedes the fix, and the leg from the fix takes at most two minutes and is faster than 5 m/s plus one and a
--      half times the speed of the leg after it.
-- A speed that the device sends is false, and no mean or maximum uses it, if both neighbouring fixes
--   - are at most 60 s away,
--   - send less than a quarter of it, or no speed,
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
-- A fix is an index into arrays, one array for each of its values. In most lambdas, a name that ends in 0 (t0, x0) is the value of the fix
-- before, and one that ends in _on or 1 (t_on, l1) that of the fix after; _on_on is the second one after. Where a lambda skips the fix itself
-- (x and x0 on both sides of it), the arguments below it decide. `way` and `line` are squared lengths of legs, because a comparison needs no
-- square root.
ALTER TABLE {database}.driver_days_mv{on_cluster} MODIFY QUERY
WITH
    -- The end of a limit's name, before _max, is its unit: milliseconds, metres, centimetres per second, metres per second, seconds. Shares have
    -- none.
    toInt64(3600000) AS gap_ms, -- a longer time without a fix is a silence
    15000 AS look_ms, -- length of the spans whose first fixes are looks
    100 AS jump_m, -- a shorter leg is neither impossible nor a jump
    toInt64(60000) AS minute_ms,
    120000 AS spike_ms_max, -- longest time to a jump and back
    10 AS still_cms, -- a lower speed sent counts as 0
    30000 AS still_ms, -- longest time between two looks at which the device reports that it stands
    45000 AS run_ms, -- shortest run that can be a stop or a part of one
    60000 AS false_ms, -- longest time to the neighbouring fixes that can show that a sent speed is false
    8 AS brake_mps2, -- a vehicle neither accelerates nor brakes harder than this, metres per second squared
    1000 AS honest_m, -- a speed of 0 is not believed at a look farther than this from the run, and on no look of a day on which the device sends only 0 but moves farther than this
    7200000 AS asleep_ms_max, -- longest time to a jump, or back, of a device that sends a speed of 0
    2.5 AS moving_mps, -- the driver moves at a look if the speed over three legs is at least this; over three legs, because a single wrong look must not count as movement
    60000 AS moving_ms, -- an absence in which the driver moves for this long is a trip
    37 AS step_m, -- length of the route that one mean covers
    64 AS step_s_max, -- longest time that one mean covers
    0.7 AS path_share, -- the speed over three legs is at least this share of (sum of their lengths / their time)
    32 AS bend_m, -- a shorter leg has no corner between its ends
    2.2 AS bend_max, -- largest sum of the turns at both ends of a leg, radians; where the route turns farther, no corner is added
    0.75 AS bend_share, -- share of the detour through the corner
    0.9 AS bend_time, -- the device sends fixes at turns if a neighbouring leg takes less than this share of the leg's time
    86400000 AS day_ms,
    900000 AS quarter_ms, -- a quarter of an hour
    6378137 AS equator_m, -- equatorial radius of WGS84
    0.0066943799901413165 AS e2, -- squared eccentricity of WGS84
    2 * 6371008.8 AS earth_m, -- mean diameter of the earth
    -- before: each element's predecessor, and `first` for the first element. after: each element's successor, and `last` for the last one.
    (xs, first) -> arrayPopBack(arrayPushFront(xs, first)) AS before,
    (xs, last) -> arrayPopFront(arrayPushBack(xs, last)) AS after,
    (xs, keep) -> arrayFilter((one, k) -> k, xs, keep) AS kept,
    (dx, dy, dz) -> dx * dx + dy * dy + dz * dz AS squared,
    -- Squared lengths of the straight lines through the earth from the element before; 0 for the first element.
    (xs, ys, zs) -> arrayMap((dx, dy, dz) -> squared(dx, dy, dz), arrayDifference(xs), arrayDifference(ys), arrayDifference(zs)) AS ways_between,
    (way, ms, mps) -> way > pow(jump_m + mps / 1000 * ms, 2) AS is_impossible,
    -- Two fixes with one time, a whole minute, come from a device or file without seconds: up to a minute may be between them.
    (ms, at) -> if(ms = 0 AND at % minute_ms = 0, minute_ms, ms) AS lasting,
    (way, ms) -> 1000 * sqrt(way) / greatest(ms, 1) AS pace,
    -- A stay is the runs joined so far: a stop if it lasts for stop_s. A stay or a run is (first fix, last fix, x, y, z, began, ended, is_kept,
    -- moved): is_kept if it counts even if it is short, moved is the time on the move since the day's first look, up to its end. belong: the run
    -- is a part of the stay's stop; `moved` is here the time up to the run's beginning. The limits of distance and absence between the stay and the run are trip_m and trip_ms if both last
    -- for long_ms, near_m and trip_ms if one does, and near_m / 2 and spike_ms if neither does.
    (stay, long_ms) -> stay.8 OR stay.7 - stay.6 >= long_ms AS is_stop,
    (stay, run, moved, long_ms, trip_m, trip_ms, near_m, spike_ms) -> moved - stay.9 < moving_ms
        AND run.6 - stay.7 <= if(greatest(stay.7 - stay.6, run.7 - run.6) >= long_ms, trip_ms, spike_ms)
        AND squared(run.3 - stay.3, run.4 - stay.4, run.5 - stay.5) <= pow(multiIf(least(stay.7 - stay.6, run.7 - run.6) >= long_ms, trip_m,
            greatest(stay.7 - stay.6, run.7 - run.6) >= long_ms, near_m, near_m / 2), 2) AS belong,
    (stay, run) -> (stay.1, run.2, stay.3, stay.4, stay.5, stay.6, run.7, stay.8 OR run.8, run.9) AS joined,
    -- Stretches of fixes alternate: without a stop, with a stop, and so on. spread repeats each stop's value for each of its fixes, and 0 for
    -- other fixes. at_stops replaces a fix's own value by that of its stop, if it has one.
    (values, lengths) -> arrayFlatten(arrayMap((n, value) -> arrayWithConstant(n, value), lengths, arrayFlatten(arrayMap(value -> [0., value], arrayPushBack(values, 0.))))) AS spread,
    (own, stretch, stops) -> arrayMap((value, n, stop) -> if(n % 2 = 0, stop, value), own, stretch, stops) AS at_stops,
    (SELECT groupArray(rule) FROM {database}.trip_rules_in_force WHERE driver_id = '') AS fleet_rules,
    -- The days that this refresh computes, each with the rules of its driver.
    wanted AS
    (
        SELECT driver_id, day, inserted, rule
        FROM
        (
            SELECT
                driver_id, day, inserted, touched_until, is_missing, if(own.rule.1 = 0, fleet_rules[1], own.rule) AS rule,
                is_missing OR done_until < touched_until + INTERVAL 10 MINUTE OR done_by != rule.1 AS is_wanted
            FROM
            (
                SELECT driver_id, day, max(found) AS inserted, max(touched) AS touched_until, inserted != max(done) AS is_missing,
                    max(done_at) AS done_until, argMax(rules, done_at) AS done_by
                FROM
                (
                    SELECT driver_id, day, sum(rows) AS found, toUInt64(0) AS done, max(touched_at) AS touched, toDateTime64(0, 3, 'UTC') AS done_at,
                        toUInt64(0) AS rules
                    FROM {database}.touched GROUP BY driver_id, day
                    UNION ALL
                    SELECT driver_id, day, 0, rows, toDateTime64(0, 3, 'UTC'), computed_at, rules FROM {database}.driver_days_state
                )
                GROUP BY driver_id, day
                HAVING inserted > 0
            ) AS days
            LEFT JOIN (SELECT driver_id, rule FROM {database}.trip_rules_in_force WHERE driver_id != '') AS own USING (driver_id)
        )
        WHERE is_wanted
        QUALIFY sum(inserted) OVER (ORDER BY is_missing DESC, touched_until DESC, day, driver_id ROWS UNBOUNDED PRECEDING) - inserted < 5000000
    ),
    -- One row for each day: its fixes and those of two hours on both sides, sorted by time.
    collected AS
    (
        SELECT
            driver_id, day, toInt64(day) * day_ms AS day_began, inserted, fix, rule.1 AS rules,
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
                WHERE (toDate(ts), driver_id) IN (SELECT day + shift, driver_id FROM wanted ARRAY JOIN [-1, 0, 1] AS shift)
            )
            WHERE (driver_id, day) IN (SELECT driver_id, day FROM wanted)
            GROUP BY driver_id, day
        ) AS fixes
        INNER JOIN wanted USING (driver_id, day)
    ),
    -- Each step is a subquery of its own. As aliases of one SELECT, the expressions would contain each other, and planning would take seconds.
    judged AS
    (
        SELECT
            *,
            arrayMap(acc_dm -> acc_dm = 65535 OR acc_dm <= acc_dm_max, fix.6) AS is_accurate,
            arrayMap((s, s0) -> if(s0 > 0 AND s > s0, s - s0 - 1, 0), fix.2, before(fix.2, 0)) AS fix_lost
        FROM collected
    ),
    -- vague_…: values of the inaccurate fixes. fix_lost: sequence numbers missing before a fix. curve: radius of curvature in the prime vertical, metres.
    accurate AS
    (
        SELECT
            * EXCEPT (fix, is_accurate, fix_lost), kept(fix.1, is_accurate) AS all_ms, kept(fix.3, is_accurate) AS all_lat, kept(fix.4, is_accurate) AS all_lng,
            kept(fix.5, is_accurate) AS all_speed, kept(fix.2, is_accurate) AS all_seq, kept(fix_lost, is_accurate) AS all_lost,
            arrayFilter((ms, lost, ok) -> NOT ok, fix.1, fix_lost, is_accurate) AS vague_ms,
            arrayFilter((lost, ok) -> NOT ok, fix_lost, is_accurate) AS vague_lost,
            arrayFilter((seq, ok) -> NOT ok, fix.2, is_accurate) AS vague_seq,
            arrayFilter((lat, ok) -> NOT ok, fix.3, is_accurate) AS vague_lat, arrayFilter((lng, ok) -> NOT ok, fix.4, is_accurate) AS vague_lng,
            arrayMap(l -> equator_m / sqrt(1 - e2 * pow(sin(radians(l / 1e7)), 2)), all_lat) AS curve
        FROM judged
    ),
    -- Cartesian coordinates, metres from the centre of the earth: x and y in the plane of the equator, z to the north.
    on_axes AS
    (
        SELECT
            * EXCEPT curve,
            arrayMap((r, a, b) -> r * cos(radians(a / 1e7)) * cos(radians(b / 1e7)), curve, all_lat, all_lng) AS all_x,
            arrayMap((r, a, b) -> r * cos(radians(a / 1e7)) * sin(radians(b / 1e7)), curve, all_lat, all_lng) AS all_y,
            arrayMap((r, a) -> r * (1 - e2) * sin(radians(a / 1e7)), curve, all_lat) AS all_z
        FROM accurate
    ),
    spaced AS
    (
        SELECT *, ways_between(all_x, all_y, all_z) AS all_way, arrayDifference(all_ms) AS all_time FROM on_axes
    ),
    -- A leap is a leg longer than 100 m plus the distance at speed_max, without a silence.
    leaping AS
    (
        SELECT
            *,
            arrayMap((way, t, m) -> t <= gap_ms AND is_impossible(way, lasting(t, m), speed_max), all_way, all_time, all_ms) AS is_leap,
            arrayMap(way -> way > jump_m * jump_m, all_way) AS is_far
        FROM spaced
    ),
    -- The four kinds of jumps, numbered as at the top. is_beyond: kinds 1 and 2. is_spike: these and kind 3. is_jump: all four. Most days have no
    -- candidate (no leap, and no leg above 100 m), so each step first tests whether it has anything to do.
    jumping AS
    (
        SELECT
            *,
            if(has(is_leap, 1), arrayMap(
                (leap, leap_on, t, t0, x, x0, y, y0, z, z0, quiet, way, t_on_on, leap_on_on) -> leap_on AND if(quiet > gap_ms,
                    NOT leap_on_on AND t_on_on <= gap_ms AND squared(x - x0, y - y0, z - z0) < way,
                    leap AND NOT is_impossible(squared(x - x0, y - y0, z - z0), lasting(t - t0, t), speed_max)),
                is_leap, after(is_leap, 0), after(all_ms, 0), before(all_ms, 0),
                after(all_x, 0), before(all_x, all_x[2]), after(all_y, 0), before(all_y, all_y[2]), after(all_z, 0), before(all_z, all_z[2]),
                -- Before the very first fix is nothing: as if after a silence that began at the second fix, so that only speeds decide.
                before(after(all_time, 0), gap_ms + 1), before(after(all_way, 0.), 1.),
                after(after(all_time, gap_ms + 1), 0), after(after(is_leap, 0), 0)), is_leap) AS is_beyond,
            -- 1: candidate for kind 3. 2: candidate for kind 4, as the fix after is back where the fix before was. 3: candidate for both.
            if(has(is_far, 1), arrayMap(
                (there, back, t, t_on, x, x0, y, y0, z, z0) -> toUInt8((there > jump_m * jump_m AND back > jump_m * jump_m) * (
                    (t + t_on <= spike_ms_max AND squared(x - x0, y - y0, z - z0) < pow(0.6 * (sqrt(there) + sqrt(back)), 2))
                        + 2 * (squared(x - x0, y - y0, z - z0) <= radius_m * radius_m))),
                all_way, after(all_way, 0.), all_time, after(all_time, 0),
                after(all_x, 0), before(all_x, 0), after(all_y, 0), before(all_y, 0), after(all_z, 0), before(all_z, 0)), is_far) AS detour
        FROM leaping
    ),
    -- leg_pace: the speed of the leg that ends at each fix. pair_pace: the speed from the second fix before straight to the fix; 1e9 if there is
    -- no such fix. Without a candidate nothing reads them.
    pacing AS
    (
        SELECT
            *,
            if(has(detour, 1) OR has(detour, 3), arrayMap((way, t) -> pace(way, t), all_way, all_time), all_x) AS leg_pace,
            if(has(detour, 1) OR has(detour, 3), arrayMap(
                (i, x, x0, y, y0, z, z0, t, t0) -> if(i < 3, 1e9, pace(squared(x - x0, y - y0, z - z0), t + t0)),
                arrayEnumerate(all_ms), all_x, before(before(all_x, 0), 0), all_y, before(before(all_y, 0), 0), all_z, before(before(all_z, 0), 0),
                all_time, before(all_time, 0)), all_x) AS pair_pace
        FROM jumping
    ),
    spiking AS
    (
        SELECT
            * EXCEPT (leg_pace, pair_pace),
            if(has(detour, 1) OR has(detour, 3), arrayMap(
                (jump, code, there, back, there0, pair0, older, back_on, pair_on, later, t, t_on, x, x0, y, y0, z, z0) -> jump OR code % 2 = 1 AND
                    least(there, back) > 1.5 * greatest(least(there0, greatest(pair0, older)), least(back_on, greatest(pair_on, later)),
                        pace(squared(x - x0, y - y0, z - z0), t + t_on)) + 5,
                is_beyond, detour, leg_pace, after(leg_pace, 0.), before(leg_pace, 0.), before(pair_pace, 1e9), before(before(before(leg_pace, 0.), 0.), 0.),
                after(after(leg_pace, 0.), 0.), after(after(after(pair_pace, 1e9), 1e9), 1e9), after(after(after(after(leg_pace, 0.), 0.), 0.), 0.),
                all_time, after(all_time, 0), after(all_x, 0), before(all_x, 0), after(all_y, 0), before(all_y, 0), after(all_z, 0), before(all_z, 0)), is_beyond) AS is_spike
        FROM pacing
    ),
    returning AS
    (
        SELECT
            *,
            if(has(detour, 2) OR has(detour, 3), arrayMap(
                (jump, code, there, t, back, t_on, back_on, t_on_on, s, s0, s_on, nearest) -> jump OR code >= 2 AND (
                    greatest(s, s0, s_on) < still_cms AND greatest(there, back) <= honest_m * honest_m AND greatest(t, t_on) <= asleep_ms_max
                        AND nearest <= radius_m * radius_m
                    OR t > gap_ms AND t_on <= spike_ms_max AND pace(back, t_on) > 1.5 * pace(back_on, t_on_on) + 5),
                is_spike, detour, all_way, all_time, after(all_way, 0.), after(all_time, 0), after(after(all_way, 0.), 0.), after(after(all_time, 0), 0),
                all_speed, before(all_speed, 0), after(all_speed, 0),
                -- The shorter one of the leg to the fix before and the leg from the fix after.
                arrayMap((way0, way_on) -> least(way0, way_on), before(before(after(all_way, 0.), inf), inf), after(after(all_way, inf), inf))), is_spike) AS is_jump
        FROM spiking
    ),
    -- The fixes that are not dropped, and the dropped ones: inaccurate fixes and jumps.
    good AS
    (
        SELECT
            driver_id, day, day_began, inserted, rules, speed_max, radius_m, stop_ms, trip_m, trip_ms, spike_ms, arrayMap(jump -> NOT jump, is_jump) AS is_good,
            kept(all_ms, is_good) AS ms, kept(all_lat, is_good) AS lat, kept(all_lng, is_good) AS lng, kept(all_speed, is_good) AS speed,
            kept(all_lost, is_good) AS lost, kept(all_x, is_good) AS x, kept(all_y, is_good) AS y, kept(all_z, is_good) AS z,
            arrayConcat(vague_ms, kept(all_ms, is_jump)) AS dropped_ms, arrayConcat(vague_lost, kept(all_lost, is_jump)) AS dropped_lost,
            arrayConcat(vague_seq, kept(all_seq, is_jump)) AS dropped_seq,
            arrayConcat(vague_lat, kept(all_lat, is_jump)) AS dropped_lat, arrayConcat(vague_lng, kept(all_lng, is_jump)) AS dropped_lng
        FROM returning
    ),
    -- first_at: index of the first fix since the day began, 0 if there is none. next_at: that of the next day's first fix.
    timed AS
    (
        SELECT
            * EXCEPT is_good,
            arrayDifference(ms) AS time,
            ways_between(x, y, z) AS way,
            arrayFirstIndex(m -> m >= day_began, ms) AS first_at,
            arrayFirstIndex(m -> m >= day_began + day_ms, ms) AS next_at,
            if(next_at = 0, toUInt32(length(ms)) + 1, next_at) AS end_at -- the index after the day's last fix
        FROM good
    ),
    sampled AS
    (
        SELECT
            *,
            arrayMap(
                (m, t, i) -> i >= first_at AND i < end_at AND first_at > 0 AND (i = first_at OR intDiv(m, look_ms) != intDiv(m - t, look_ms)),
                ms, time, arrayEnumerate(ms)) AS is_look,
            x[first_at] AS first_x, y[first_at] AS first_y, z[first_at] AS first_z,
            x[next_at] AS next_x, y[next_at] AS next_y, z[next_at] AS next_z,
            -- Speeds sent, without the false ones. 65535: unknown or false.
            arrayMap((s, s0, s_on, line, line_on, t, t_on) -> if(s != 65535 AND greatest(t, t_on) <= false_ms AND 4 * greatest(s0 % 65535, s_on % 65535) < s
                AND greatest(line, line_on) < pow(least(s * s / (20000 * brake_mps2), s * least(t, t_on) / 400000), 2), 65535, s),
                speed, before(speed, 0), after(speed, 0), way, after(way, inf), time, after(time, 0)) AS true_speed
        FROM timed
    ),
    looked AS
    (
        SELECT
            * EXCEPT is_look,
            kept(ms, is_look) AS look_at_ms, kept(x, is_look) AS look_x, kept(y, is_look) AS look_y, kept(z, is_look) AS look_z,
            kept(time, is_look) AS look_quiet_ms, kept(way, is_look) AS look_way, kept(speed, is_look) AS look_speed,
            kept(arrayEnumerate(ms), is_look) AS look_fix
        FROM sampled
    ),
    -- is_honest: the device's speeds of 0 can be believed. It has sent another speed, or has stayed within honest_m.
    trusted AS
    (
        SELECT
            *,
            arrayExists(s -> s != 65535 AND s >= still_cms, look_speed)
                OR NOT arrayExists((lx, ly, lz) -> squared(lx - look_x[1], ly - look_y[1], lz - look_z[1]) > honest_m * honest_m, look_x, look_y, look_z) AS is_honest,
            arrayMap(way -> sqrt(way), ways_between(look_x, look_y, look_z)) AS look_step
        FROM looked
    ),
    -- look_pace: the speed around a look, from the look before it to the second look after it. look_limit: squared distance from the first look
    -- of a run up to which a look belongs to the run.
    paced AS
    (
        SELECT
            *,
            arrayMap(s -> is_honest AND s < still_cms, look_speed) AS look_is_still,
            arrayMap((t, way) -> pow(if(t < stop_ms, radius_m, trip_m + if(way <= trip_m * trip_m, radius_m, 0)), 2), look_quiet_ms, look_way) AS look_limit,
            arrayMap(
                (lx, lx0, ly, ly0, lz, lz0, m, m0) -> pace(squared(lx - lx0, ly - ly0, lz - lz0), m - m0),
                after(after(look_x, look_x[-1]), look_x[-1]), before(look_x, look_x[1]), after(after(look_y, look_y[-1]), look_y[-1]), before(look_y, look_y[1]),
                after(after(look_z, look_z[-1]), look_z[-1]), before(look_z, look_z[1]),
                after(after(look_at_ms, look_at_ms[-1]), look_at_ms[-1]), before(look_at_ms, look_at_ms[1])) AS look_pace,
            -- The speed between consecutive looks, if the device sends none.
            arrayMap(
                (way, t, s) -> if(s = 65535 AND t >= 5000 AND t <= gap_ms AND NOT is_impossible(way, t, speed_max), pace(way, t), 0.),
                ways_between(look_x, look_y, look_z), arrayDifference(look_at_ms), look_speed) AS look_derived
        FROM trusted
    ),
    -- Runs: looks within the radius of the first one, or within honest_m (`reach`) while the device reports a speed of 0. Each run has its first
    -- and last fix, its first look, the number of looks in its first stop_s, whether it counts as a stop even if it is short, the times of its
    -- first and last look, and its last look. Before a silence, the last fix of a run is the last fix before the silence. An additional look at
    -- the end closes the last run. The state of the fold:
    --   s.1 to s.3   place of the run's first look
    --   s.4, s.5     times of its first and last look
    --   s.6, s.7     its first and last fix
    --   s.8, s.9     its first look, and the number of looks in its first stop_s
    --   s.10         1: the run begins after a silence; 2: after parking; 3: where a speed of 0 was not believed; 0: otherwise
    --   s.11         the runs before it that are long enough, next to parking, or between two silences
    -- slot_pace: look_pace, but at least path_share of the speed along the legs.
    folded AS
    (
        SELECT
            * EXCEPT (look_derived, look_limit, look_step),
            -- On a road that turns back, the straight line over three legs is short, but the legs are not.
            arrayMap(
                (p, one, two, three, m, m0) -> greatest(p, path_share * 1000 * (one + two + three) / greatest(m - m0, 1)),
                look_pace, look_step, after(look_step, 0.), after(after(look_step, 0.), 0.),
                after(after(look_at_ms, look_at_ms[-1]), look_at_ms[-1]), before(look_at_ms, look_at_ms[1])) AS slot_pace,
            arrayMax(look_derived) AS pace_max,
            if(pace_max = 0, (CAST([], 'Array(UInt32)'), CAST([], 'Array(UInt16)')), arrayReduce('maxMap',
                arrayMap(m -> [toUInt32(intDiv(m, quarter_ms))], look_at_ms), arrayMap(p -> [toUInt16(least(65534, p * 100))], look_derived))) AS pace_maxima,
            arrayFold(
                (s, m, lx, ly, lz, is_new, limit, reach, edge, parked, fix_at, look_at) -> if(
                    is_new OR squared(lx - s.1, ly - s.2, lz - s.3) > if(s.10 = 3, limit, reach),
                    (lx, ly, lz, m, m, fix_at, fix_at, look_at, toInt64(1), if(is_new, if(parked, 2, edge), if(reach > limit, 3, 0)),
                        if(s.5 - s.4 >= run_ms OR s.10 = 2 OR is_new AND (parked OR s.10 = 1 AND edge),
                            arrayPushBack(s.11, (s.6, if(is_new, fix_at - 1, s.7), s.8, s.9, toUInt8(s.10 = 2 OR is_new AND (parked OR s.10 = 1 AND edge)), s.4, s.5, look_at - 1)), s.11)),
                    (s.1, s.2, s.3, s.4, m, s.6, fix_at, s.8, s.9 + (m - s.4 <= stop_ms), s.10, s.11)),
                arrayPushBack(look_at_ms, 0), arrayPushBack(look_x, 0.), arrayPushBack(look_y, 0.), arrayPushBack(look_z, 0.),
                arrayMap((t, i) -> t > gap_ms OR i = first_at, arrayPushBack(look_quiet_ms, gap_ms + 1), arrayPushBack(look_fix, 0)),
                arrayPushBack(look_limit, 0.),
                arrayPushBack(arrayMap((s, s0, t, limit) -> if(s AND s0 AND t <= still_ms, greatest(limit, honest_m * honest_m), limit),
                    look_is_still, before(look_is_still, 0), arrayDifference(look_at_ms), look_limit), 0.),
                arrayMap((t, i) -> t > gap_ms OR i = 1, arrayPushBack(look_quiet_ms, if(next_at = 0, gap_ms + 1, time[next_at])), arrayPushBack(look_fix, 0)),
                arrayMap((t, way, i) -> t > gap_ms AND way <= trip_m * trip_m AND i > first_at, arrayPushBack(look_quiet_ms, 0), arrayPushBack(look_way, 0.), arrayPushBack(look_fix, 0)),
                arrayMap(i -> toInt64(i), arrayPushBack(look_fix, end_at)), arrayMap(i -> toInt64(i), arrayEnumerate(arrayPushBack(look_fix, 0))),
                (0., 0., 0., toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toUInt8(0), CAST([], 'Array(Tuple(Int64, Int64, Int64, Int64, UInt8, Int64, Int64, Int64))'))
            ).11 AS runs
        FROM paced
    ),
    ranged AS
    (
        SELECT
            *,
            arrayMap((first, count) -> (toUInt64(first), toUInt64(count)), runs.3, runs.4) AS run_looks,
            -- The looks between the run before and this one.
            arrayMap((first, last) -> (toUInt64(last + 1), toUInt64(first - last - 1)), runs.3, before(runs.8, 0)) AS absent_looks,
            arrayMap((p, t) -> if(p >= moving_mps AND t <= gap_ms, toInt64(t), toInt64(0)), look_pace, arrayDifference(look_at_ms)) AS look_moving_ms
        FROM folded
    ),
    averaged AS
    (
        SELECT
            *,
            arrayReduceInRanges('avg', run_looks, look_x) AS run_x, arrayReduceInRanges('avg', run_looks, look_y) AS run_y,
            arrayReduceInRanges('avg', run_looks, look_z) AS run_z,
            arrayReduceInRanges('sum', arrayMap((first, last) -> (toUInt64(first), toUInt64(last - first + 1)), runs.3, runs.8), look_moving_ms) AS inside_ms,
            arrayCumSum(arrayMap((absent, inside) -> absent + inside, arrayReduceInRanges('sum', absent_looks, look_moving_ms), inside_ms)) AS run_moved_ms
        FROM ranged
    ),
    -- Stops: runs that belong together, with their first and last fix and the place of the first run. A run belongs to the stay so far (s.1) or, if
    -- that is too short for a stop, to the last stop (s.2[-1]). An additional run at the end closes the last stop.
    stayed AS
    (
        SELECT
            * EXCEPT (runs, run_looks, absent_looks, look_moving_ms, inside_ms, run_moved_ms, run_x, run_y, run_z, look_at_ms, look_x, look_y, look_z, look_quiet_ms, look_way, look_speed, look_is_still),
            arrayFold(
                (s, run, moved) -> multiIf(
                    belong(s.1, run, moved, stop_ms, trip_m, trip_ms, radius_m, spike_ms), (joined(s.1, run), s.2),
                    NOT is_stop(s.1, stop_ms) AND belong(s.2[-1], run, moved, stop_ms, trip_m, trip_ms, radius_m, spike_ms), (joined(s.2[-1], run), arrayPopBack(s.2)),
                    (run, if(is_stop(s.1, stop_ms), arrayPushBack(s.2, s.1), s.2))),
                arrayPushBack(arrayZip(runs.1, runs.2, run_x, run_y, run_z, runs.6, runs.7, runs.5, run_moved_ms), (0, 0, 0., 0., 0., 0, 0, 0, 0)),
                arrayPushBack(arrayMap((moved, inside) -> moved - inside, run_moved_ms, inside_ms), 0),
                ((toInt64(0), toInt64(0), 0., 0., 0., toInt64(0), toInt64(0), toUInt8(0), toInt64(0)),
                    CAST([], 'Array(Tuple(Int64, Int64, Float64, Float64, Float64, Int64, Int64, UInt8, Int64))'))
            ).2 AS stops
        FROM averaged
    ),
    -- Lengths of the stretches, in fixes: without a stop, with one, without one, ..., without one.
    stretched AS
    (
        SELECT
            *,
            arrayFlatten(arrayMap(
                (last, next, first, end) -> [next - last - 1, end - first + 1],
                arrayPushFront(stops.2, 0), arrayPushBack(stops.1, toInt64(length(ms)) + 1), arrayPushBack(stops.1, 1), arrayPushBack(stops.2, 0))) AS lengths,
            -- Lengths of time slots, in milliseconds: the fixes of a slot become one point of the route.
            arrayFlatten(arrayMap(
                (mark, mark_on, slot_ms) -> arrayWithConstant(mark_on - mark, slot_ms),
                arrayConcat([1], look_fix, [end_at]), arrayConcat(look_fix, [end_at, toUInt32(length(ms)) + 1]),
                arrayConcat([1000], arrayMap(p -> multiIf(p >= step_m, 1000, p * 2 >= step_m, 2000, p * 4 >= step_m, 4000, p * 8 >= step_m, 8000,
                    p * 16 >= step_m, 16000, p * 32 >= step_m, 32000, step_s_max * 1000), slot_pace), [1000]))) AS slot_ms
        FROM stayed
    ),
    numbered AS
    (
        SELECT * EXCEPT (look_fix, look_pace, slot_pace), arrayFlatten(arrayMap((n, i) -> arrayWithConstant(n, i), lengths, arrayEnumerate(lengths))) AS stretch FROM stretched
    ),
    placed AS
    (
        SELECT
            * EXCEPT (x, y, z),
            at_stops(x, stretch, spread(stops.3, lengths)) AS place_x,
            at_stops(y, stretch, spread(stops.4, lengths)) AS place_y,
            at_stops(z, stretch, spread(stops.5, lengths)) AS place_z,
            NOT arrayExists((m, fx, fy, fz) -> abs(m - day_began) <= stop_ms AND squared(fx - first_x, fy - first_y, fz - first_z) > radius_m * radius_m,
                ms, x, y, z) AS is_still_first,
            NOT arrayExists((m, fx, fy, fz) -> abs(m - day_began - day_ms) <= stop_ms AND squared(fx - next_x, fy - next_y, fz - next_z) > radius_m * radius_m,
                ms, x, y, z) AS is_still_last,
            arrayMap((m, t) -> intDiv(m, day_ms) != intDiv(m - t, day_ms), ms, time) AS is_over_midnight
        FROM numbered
    ),
    -- The kind of the leg that ends at each fix, as a number of the column parts.kind of driver_days_state.
    classed AS
    (
        SELECT
            *,
            arrayMap(
                (i, m, t, line, over, run, run0) -> multiIf(
                    i = 1 OR t > gap_ms OR is_impossible(line, lasting(t, m), speed_max), 0,
                    over, if(line <= radius_m * radius_m AND if(m >= day_began + day_ms, is_still_last, is_still_first), 2, 1),
                    run % 2 = 0 AND run = run0, 2,
                    1),
                arrayEnumerate(ms), ms, time, way, is_over_midnight, stretch, before(stretch, 0)) AS kind
        FROM placed
    ),
    routed AS
    (
        SELECT *, arrayMap((k, over) -> k = 1 AND NOT over, kind, is_over_midnight) AS is_way FROM classed
    ),
    -- is_begin marks the first fix of each point. A point is a single fix, the fixes of a slot, or those of a stop in one quarter of an hour.
    pointed AS
    (
        SELECT
            *,
            arrayMap(
                (own, own_before, own_after, run, run0, k, k0, over, over0, m, m0, slot, slot0) -> NOT (intDiv(m, quarter_ms) = intDiv(m0, quarter_ms) AND (
                    own AND own_before AND own_after AND run % 2 = 1 AND run0 % 2 = 1 AND slot = slot0 AND intDiv(m, slot) = intDiv(m0, slot)
                    OR k = 2 AND k0 = 2 AND NOT over AND NOT over0)),
                is_way, before(is_way, 0), after(is_way, 0), stretch, before(stretch, 0), kind, before(kind, 0), is_over_midnight, before(is_over_midnight, 0),
                ms, before(ms, 0), slot_ms, before(slot_ms, 1)) AS is_begin
        FROM routed
    ),
    numbering AS
    (
        SELECT *, after(is_begin, 1) AS is_end, kept(arrayMap(i -> toInt64(i), arrayEnumerate(ms)), is_begin) AS point_from FROM pointed
    ),
    spanned AS
    (
        SELECT *, arrayMap((i, i_on) -> (toUInt64(i), toUInt64(i_on - i)), point_from, after(point_from, toInt64(length(ms)) + 1)) AS ranges FROM numbering
    ),
    points AS
    (
        SELECT
            driver_id, day, day_began, inserted, rules, trip_m, pace_max, pace_maxima, dropped_ms, dropped_lost, dropped_seq, dropped_lat, dropped_lng,
            kept(kind, is_end) AS kind, kept(is_way, is_end) AS is_way, kept(is_over_midnight, is_end) AS is_over_midnight, kept(way, is_end) AS line,
            kept(ms, is_end) AS point_ms, kept(lat, is_end) AS point_lat, kept(lng, is_end) AS point_lng,
            arrayMap(range -> toInt64(range.2), ranges) AS count,
            arrayReduceInRanges('sum', ranges, arrayMap(l -> toUInt32(l), lost)) AS lost,
            arrayReduceInRanges('sum', ranges, arrayMap(s -> toUInt32(s != 65535), true_speed)) AS speed_count,
            arrayReduceInRanges('sum', ranges, arrayMap(s -> if(s = 65535, 0, s), true_speed)) AS speed_sum,
            arrayReduceInRanges('max', ranges, arrayMap(s -> if(s = 65535, 0, s), true_speed)) AS speed_max,
            arrayReduceInRanges('avg', ranges, place_x) AS point_x, arrayReduceInRanges('avg', ranges, place_y) AS point_y,
            arrayReduceInRanges('avg', ranges, place_z) AS point_z
        FROM spanned
    ),
    stepped AS
    (
        SELECT *, arrayDifference(point_x) AS dx, arrayDifference(point_y) AS dy, arrayDifference(point_z) AS dz FROM points
    ),
    squared_steps AS
    (
        SELECT *, arrayMap((a, b, c) -> squared(a, b, c), dx, dy, dz) AS squares, arrayDifference(point_ms) AS step_ms FROM stepped
    ),
    -- The turn at each point, from the leg that ends there to the next one; a turn to the left is positive.
    turned AS
    (
        SELECT
            *,
            arrayMap(
                (own, own_after, a, a1, b, b1, c, c1, l, l1, px, py, pz) -> if(own AND own_after AND l > 0 AND l1 > 0,
                    acos(greatest(-1., least(1., (a * a1 + b * b1 + c * c1) / sqrt(l * l1)))) * sign((b * c1 - c * b1) * px + (c * a1 - a * c1) * py + (a * b1 - b * a1) * pz), 0.),
                is_way, after(is_way, 0), dx, after(dx, 0.), dy, after(dy, 0.), dz, after(dz, 0.), squares, after(squares, 0.), point_x, point_y, point_z) AS turn
        FROM squared_steps
    ),
    -- metres: the length of the leg that ends at each point, with the detour of a curve. piece: number of the trip, stop or gap within the day.
    measured AS
    (
        SELECT
            *,
            arrayMap(
                (k, own, m0, straight, l, l0, l1, t, t0, t1, turn_to, turn_from) -> if(k = 2 OR k = 0 AND m0 < day_began, 0.,
                    earth_m * asin(least(1., sqrt(if(own, l, straight)) / earth_m))
                    * if(own AND l >= bend_m * bend_m AND turn_to * turn_from > 0 AND abs(turn_to + turn_from) < bend_max
                            AND (l0 >= bend_m * bend_m OR t0 >= bend_time * t) AND (l1 >= bend_m * bend_m OR t1 >= bend_time * t),
                        1 + bend_share * ((sin(abs(turn_to)) + sin(abs(turn_from))) / sin(abs(turn_to + turn_from)) - 1), 1.)),
                kind, is_way, before(point_ms, 0), line, squares, before(squares, 0.), after(squares, 0.),
                step_ms, before(step_ms, 0), after(step_ms, 0), before(turn, 0.), turn) AS metres,
            arrayCumSum(arrayMap((k, k0) -> k != k0 OR k = 0, kind, before(kind, 0))) AS piece,
            length(point_ms) + length(dropped_ms) AS legs
        FROM turned
    ),
    -- A dropped fix is a leg without a length; its piece is its seq.
    legs AS
    (
        SELECT
            driver_id, day, day_began, inserted, rules, trip_m, pace_max, leg_kind, leg_from_ms, leg_ms, leg_count, leg_lost, leg_speed_count, leg_speed_sum, leg_speed,
            leg_metres, leg_piece, leg_lat, leg_lng, leg_to_lat, leg_to_lng, leg_x, leg_y, leg_z, leg_at, leg_maxima
        FROM measured
        ARRAY JOIN
            arrayConcat(kind, arrayMap(m -> 3, dropped_ms)) AS leg_kind,
            arrayConcat(before(point_ms, 0), dropped_ms) AS leg_from_ms, arrayConcat(point_ms, dropped_ms) AS leg_ms,
            arrayConcat(count, arrayMap(m -> 1, dropped_ms)) AS leg_count,
            arrayConcat(arrayMap(l -> toInt64(l), lost), dropped_lost) AS leg_lost, arrayResize(speed_count, legs) AS leg_speed_count, arrayResize(speed_sum, legs) AS leg_speed_sum,
            arrayResize(speed_max, legs) AS leg_speed,
            arrayResize(metres, legs) AS leg_metres, arrayConcat(piece, dropped_seq) AS leg_piece,
            arrayConcat(before(point_lat, point_lat[1]), dropped_lat) AS leg_lat, arrayConcat(before(point_lng, point_lng[1]), dropped_lng) AS leg_lng,
            arrayConcat(point_lat, dropped_lat) AS leg_to_lat, arrayConcat(point_lng, dropped_lng) AS leg_to_lng,
            arrayResize(point_x, legs) AS leg_x, arrayResize(point_y, legs) AS leg_y, arrayResize(point_z, legs) AS leg_z, range(legs) AS leg_at,
            arrayResize([pace_maxima], legs) AS leg_maxima -- the maxima of the day, at its first leg only
    ),
    -- Legs outside the day are kept in the quarter 0, so that a day without fixes gets a row, too.
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
    -- A leg that spans several quarters of an hour has a row for each of them.
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
    -- share: the part of the leg's time that is in the quarter. is_end: the leg ends in the quarter, so its fixes count there.
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
            part_key.1 AS driver_id, part_key.2 AS day, part_key.3 AS quarter, part_key.4 AS piece, any(inserted) AS inserted_rows, any(rules) AS rules_hash,
            any(pace_max) AS pace_of_day, toFloat32(any(trip_m)) AS trip_m_of_day, any(leg_kind) AS part_kind,
            min(part_began_ms) AS began_ms, max(part_ended_ms) AS ended_ms,
            toFloat32(sum(leg_metres * share)) AS metres, sumIf(leg_count, is_end) AS fixes, sumIf(leg_lost, is_end) AS missing,
            sumIf(leg_speed_count, is_end) AS speed_count, sumIf(leg_speed_sum, is_end) AS speed_sum, maxIf(leg_speed, is_end) AS speed_max,
            argMax(leg_maxima, length(leg_maxima.1)) AS part_maxima,
            argMin((leg_lat, leg_lng, leg_x, leg_y, leg_z), (first_ms, leg_at)) AS begin, argMax((leg_to_lat, leg_to_lng), (last_ms, leg_at)) AS end
        FROM shared
        GROUP BY part_key -- a single key, because the analyzer hashes the whole query for each key
    )
SELECT
    day, driver_id,
    arraySort(groupArrayIf((
        quarter, piece, part_kind, began_ms, ended_ms, metres, fixes, missing, speed_count, speed_sum, speed_max,
        if(part_kind = 2, toInt32(round(1e7 * degrees(atan2(begin.5, (1 - e2) * sqrt(begin.3 * begin.3 + begin.4 * begin.4))))), begin.1),
        if(part_kind = 2, toInt32(round(1e7 * degrees(atan2(begin.4, begin.3)))), begin.2), end.1, end.2), quarter > 0)) AS parts,
    any(inserted_rows) AS rows,
    any(rules_hash) AS rules, any(trip_m_of_day) AS trip_m, toUInt16(least(65534, any(pace_of_day) * 100)) AS derived_cms,
    argMax(part_maxima, length(part_maxima.1)) AS derived,
    now64(3) AS computed_at
FROM parts
GROUP BY driver_id, day
SETTINGS max_insert_threads = 1, min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 100000000000, group_by_two_level_threshold = 0, group_by_two_level_threshold_bytes = 0, do_not_merge_across_partitions_select_final = 1,
    -- These steps of the analyzer hash or copy the whole query for each expression. Disabling them halves the planning time.
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    query_plan_execute_functions_after_sorting = 0, query_plan_merge_expressions = 0
