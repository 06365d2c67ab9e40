-- Periods in which a driver was faster than the given speed, in metres per second: one row from the first fast fix to the last one. A slower fix
-- ends the period, and so do 180 s without a fast fix if speeds are sent. The speed is the one that the device sent, or, if it sent none, a
-- derived one.
--
-- A sample is the first fix in a span of 15 seconds. For sent speeds, only fast fixes count.
--   is_derived  The speed is derived from two consecutive samples that are 5 s to an hour apart: their distance divided by the time between
--               them. The period then begins with the first of the two.
--   is_stuck    The device repeats a high speed, but hardly moves: two consecutive samples are 5 s to an hour apart, and their distance is less
--               than stuck_m, and less than a quarter of the distance driven at that speed. Such fixes are left out.
-- Dropped fixes (sql/360) are also left out.
--
-- The view reads only the days on which a driver exceeded the given speed. For sent speeds, the index speed_range (sql/302) finds these days.
-- For derived speeds, the column derived_cms (sql/352) does so, once the day is computed.
CREATE OR REPLACE VIEW {database}_ask.speeding{on_cluster} AS
WITH
    toDate32(parseDateTime64BestEffort({from:String}, 3, {tz:String}), 'UTC') AS first_day,
    toDate32(parseDateTime64BestEffort({to:String}, 3, {tz:String}), 'UTC') AS last_day,
    3600000 AS gap_ms, -- as in sql/360
    15000 AS sampling_ms, -- as in sql/360
    50 AS stuck_m, -- a shorter distance between two samples is hardly a move; half of radius_m of a car (sql/351)
    6378137 AS equator_m, -- equatorial radius of WGS84
    0.9966471893352525 AS axis_ratio, -- polar radius of WGS84, divided by the equatorial radius
    2 * 6371008.8 AS earth_diameter_m -- mean diameter of the earth
SELECT
    driver_id,
    fromUnixTimestamp64Milli(min(began_ms), {tz:String}) AS began, fromUnixTimestamp64Milli(max(ended_ms), {tz:String}) AS ended,
    (max(ended_ms) - min(began_ms)) / 1000 AS seconds, sum(span_fixes) AS fixes,
    toFloat32(max(fastest_cms) / 100) AS speed_max, argMax(fastest_at.1, (fastest_cms, -began_ms)) / 1e7 AS lat, argMax(fastest_at.2, (fastest_cms, -began_ms)) / 1e7 AS lng,
    false AS is_derived
FROM
(
    SELECT *, sum(begins) OVER (PARTITION BY driver_id ORDER BY began_ms, run ROWS UNBOUNDED PRECEDING) AS period
    FROM
    (
        SELECT
            *, lagInFrame((run, ended_ms)) OVER with_neighbours AS span_before,
            span_before.1 != run OR began_ms - span_before.2 > 180000 AS begins
        FROM
        (
            SELECT
                *, abs(began_ms - neighbour.1) AS leg_ms,
                neighbour.2 = run AND leg_ms BETWEEN 5000 AND gap_ms AND geoDistance(sample.4 / 1e7, sample.3 / 1e7, neighbour.4 / 1e7, neighbour.3 / 1e7)
                    < least(stuck_m, slowest_cms * leg_ms / 400000) AS is_stuck
            FROM
            (
                -- neighbour: the next sample of the run if it is at most gap_ms later, otherwise the previous one.
                SELECT *, if(after.2 = run AND after.1 - began_ms <= gap_ms, after, before) AS neighbour
                FROM
                (
                    SELECT *, leadInFrame(sample) OVER with_neighbours AS after, lagInFrame(sample) OVER with_neighbours AS before
                    FROM
                    (
                        -- The fast fixes of each 15-second span. A run is a series of fast fixes without a slower one between them. sample: time, run,
                        -- latitude and longitude of the span's first fast fix.
                        SELECT
                            driver_id, run, min(ms) AS began_ms, max(ms) AS ended_ms, count() AS span_fixes, min(speed_cms) AS slowest_cms, max(speed_cms) AS fastest_cms,
                            argMin((ms, run, lat_e7, lng_e7), (ms, seq)) AS sample, argMax((lat_e7, lng_e7), (speed_cms, -ms)) AS fastest_at
                        FROM
                        (
                            SELECT *, sum(is_first) OVER (PARTITION BY driver_id ORDER BY ms, seq, lat_e7, lng_e7 ROWS UNBOUNDED PRECEDING) AS run
                            FROM
                            (
                                SELECT
                                    driver_id, seq, lat_e7, lng_e7, speed_cms, toUnixTimestamp64Milli(ts) AS ms, speed_cms / 100 > {speed:Float64} AS is_fast,
                                    NOT lagInFrame(is_fast) OVER with_previous AS is_first
                                FROM {database}.positions{all} FINAL
                                WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                                    AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
                                    AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
                                    AND speed_cms != 65535 AND (acc_dm = 65535 OR acc_dm <= 2000)
                                    AND indexHint((toDate(ts), driver_id) GLOBAL IN -- selects the granules to read, and filters no row: is_fast tests each row
                                    (
                                        SELECT DISTINCT toDate(ts), driver_id
                                        FROM {database}.positions{all}
                                        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                                            AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
                                            AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
                                            AND speed_cms % 65535 > {speed:Float64} * 100 - 1
                                    ))
                                    AND (driver_id, ms, seq, lat_e7, lng_e7) GLOBAL NOT IN
                                    (
                                        SELECT toString(driver_id), dropped.ms, dropped.seq, dropped.lat_e7, dropped.lng_e7
                                        FROM {database}.driver_days_state{all} FINAL
                                        ARRAY JOIN dropped
                                        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id)) AND day >= first_day AND day <= last_day
                                    )
                                WINDOW with_previous AS (PARTITION BY driver_id ORDER BY ms, seq, lat_e7, lng_e7 ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
                            )
                            WHERE is_fast
                        )
                        GROUP BY driver_id, run, intDiv(ms, sampling_ms)
                    )
                    WINDOW with_neighbours AS (PARTITION BY driver_id ORDER BY began_ms, run ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
                )
            )
        )
        WHERE NOT is_stuck
        WINDOW with_neighbours AS (PARTITION BY driver_id ORDER BY began_ms, run ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
)
GROUP BY driver_id, period
SETTINGS -- ClickHouse applies the settings of the last SELECT only to that one
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
UNION ALL
SELECT
    driver_id,
    fromUnixTimestamp64Milli(min(before_ms), {tz:String}) AS began, fromUnixTimestamp64Milli(max(ms), {tz:String}) AS ended,
    (max(ms) - min(before_ms)) / 1000 AS seconds, count() AS fixes,
    toFloat32(max(derived_mps)) AS speed_max, argMax(sample_lat_e7, derived_mps) / 1e7 AS lat, argMax(sample_lng_e7, derived_mps) / 1e7 AS lng, true AS is_derived
FROM
(
    SELECT *, sum(begins) OVER (PARTITION BY driver_id ORDER BY ms ROWS UNBOUNDED PRECEDING) AS period
    FROM
    (
        SELECT *, before_ms != lagInFrame(ms) OVER (PARTITION BY driver_id ORDER BY ms ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS begins
        FROM
        (
            SELECT
                driver_id, ms, sample_lat_e7, sample_lng_e7, derived_mps_max,
                lagInFrame((ms, sample_lng_e7, axis_m, plane_m)) OVER (PARTITION BY driver_id ORDER BY ms ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before,
                before.1 AS before_ms, before.2 AS before_lng_e7, before.3 AS before_axis_m, before.4 AS before_plane_m,
                1000 / greatest(ms - before_ms, 1) * earth_diameter_m * asin(least(1., L2Norm((
                    axis_m - before_axis_m, plane_m - before_plane_m, 2 * sqrt(axis_m * before_axis_m) * sin(radians((sample_lng_e7 - before_lng_e7) / 2e7)))) / earth_diameter_m)) AS derived_mps
            FROM
            (
                -- The first fix of each 15-second span.
                SELECT
                    driver_id, min(at_ms) AS ms, argMin(lat_e7, (at_ms, seq)) AS sample_lat_e7, argMin(lng_e7, (at_ms, seq)) AS sample_lng_e7,
                    any(fastest_cms) / 100 * 1.05 AS derived_mps_max, -- a faster leg is left out: its speed is impossible (sql/360)
                    axis_ratio * tan(radians(sample_lat_e7 / 1e7)) AS slope, equator_m / sqrt(1 + slope * slope) AS axis_m, axis_ratio * slope * axis_m AS plane_m
                FROM
                (
                    SELECT driver_id, toUnixTimestamp64Milli(ts) AS at_ms, seq, lat_e7, lng_e7
                    FROM {database}.positions{all} FINAL
                    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                        AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
                        AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
                        AND speed_cms = 65535 AND (acc_dm = 65535 OR acc_dm <= 2000)
                        AND (toDate(ts), driver_id) GLOBAL IN
                        (
                            SELECT day, toString(driver_id)
                            FROM {database}.driver_days_state{all}
                            WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id)) AND day >= first_day AND day <= last_day
                                AND derived_cms > {speed:Float64} * 100 - 1
                        )
                        AND (driver_id, toUnixTimestamp64Milli(ts), seq, lat_e7, lng_e7) GLOBAL NOT IN
                        (
                            SELECT toString(driver_id), dropped.ms, dropped.seq, dropped.lat_e7, dropped.lng_e7
                            FROM {database}.driver_days_state{all} FINAL
                            ARRAY JOIN dropped
                            WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id)) AND day >= first_day AND day <= last_day
                        )
                ) AS fix
                GLOBAL INNER JOIN
                (
                    SELECT toString(driver_id) AS driver_id, max(derived_cms) AS fastest_cms
                    FROM {database}.driver_days_state{all} FINAL
                    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id)) AND day >= first_day AND day <= last_day
                        AND derived_cms > {speed:Float64} * 100 - 1
                    GROUP BY driver_id
                ) AS computed USING (driver_id)
                GROUP BY driver_id, intDiv(at_ms, sampling_ms)
            )
        )
        WHERE before_ms > 0 AND ms - before_ms BETWEEN 5000 AND gap_ms AND derived_mps > {speed:Float64} AND derived_mps <= derived_mps_max
    )
)
GROUP BY driver_id, period
SETTINGS -- the first three of these shorten the planning (sql/360)
    optimize_and_compare_chain = 0, optimize_aggregators_of_group_by_keys = 0, optimize_group_by_function_keys = 0,
    do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'speeding(driver, speed, from, to, tz)'
