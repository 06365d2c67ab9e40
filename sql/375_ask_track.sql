-- The fixes of drivers, one by one.
--   metres, seconds   Measured from the previous fix that is not dropped. Both are 0 at a dropped fix, and at the first fix in the window from
--                     `from` to `to`.
--   dropped           The reason why the fix is left out of distances: 'inaccurate', or 'jump' once its day is computed (sql/360).
--   speed_derived     metres divided by seconds, if the device sent no speed and the previous fix is 5 s to an hour older.
-- metres is the length of the arc above a chord, the straight line through the earth between two fixes. The chord is computed from the distances
-- of both fixes to the earth's axis (axis_m) and to the plane of the equator (plane_m), and from the angle between their meridians.
CREATE OR REPLACE VIEW {database}_ask.track{on_cluster} AS
WITH
    6378137 AS equator_m, -- equatorial radius of WGS84
    0.9966471893352525 AS axis_ratio, -- polar radius of WGS84, divided by the equatorial radius
    2 * 6371008.8 AS earth_diameter_m -- mean diameter of the earth
SELECT
    driver_id, toTimeZone(ts, {tz:String}) AS ts, seq, lat_e7 / 1e7 AS lat, lng_e7 / 1e7 AS lng,
    toFloat32(nullIf(speed_cms, 65535) / 100) AS speed, toFloat32(nullIf(heading_cdeg, 65535) / 100) AS heading,
    toFloat32(nullIf(alt_dm, 2147483647) / 10) AS alt, toFloat32(nullIf(acc_dm, 65535) / 10) AS acc,
    is_good * (ms - before_ms) / 1000 AS seconds,
    is_good * earth_diameter_m * asin(least(1., L2Norm((
        axis_m - before_axis_m, plane_m - before_plane_m, 2 * sqrt(axis_m * before_axis_m) * sin(radians((lng_e7 - before_lng_e7) / 2e7)))) / earth_diameter_m)) AS metres,
    if(speed_cms = 65535 AND seconds BETWEEN 5 AND 3600, toFloat32(metres / seconds), NULL) AS speed_derived,
    multiIf(is_good, '', is_accurate, 'jump', 'inaccurate') AS dropped
FROM
(
    SELECT
        *,
        (ms, lng_e7, axis_m, plane_m) AS here, lagInFrame(here, 1, here) OVER with_previous AS before,
        before.1 AS before_ms, before.2 AS before_lng_e7, before.3 AS before_axis_m, before.4 AS before_plane_m
    FROM
    (
        SELECT
            driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm,
            toUnixTimestamp64Milli(ts) AS ms,
            axis_ratio * tan(radians(lat_e7 / 1e7)) AS slope, equator_m / sqrt(1 + slope * slope) AS axis_m, axis_ratio * slope * axis_m AS plane_m,
            acc_dm <= 2000 OR acc_dm = 65535 AS is_accurate, is_accurate AND (driver_id, ms, seq, lat_e7, lng_e7) GLOBAL NOT IN
            (
                SELECT toString(driver_id), dropped.ms, dropped.seq, dropped.lat_e7, dropped.lng_e7
                FROM {database}.driver_days_state{all} FINAL
                ARRAY JOIN dropped
                WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                    AND day >= toDate32(parseDateTime64BestEffort({from:String}, 3, {tz:String}), 'UTC')
                    AND day <= toDate32(parseDateTime64BestEffort({to:String}, 3, {tz:String}), 'UTC')
            ) AS is_good
        FROM {database}.positions{all} FINAL
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
            AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
    )
    WINDOW with_previous AS (PARTITION BY driver_id, is_good ORDER BY ms, seq, lat_e7, lng_e7 ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'track(driver, from, to, tz)'
