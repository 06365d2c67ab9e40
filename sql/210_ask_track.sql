-- Where drivers were, fix by fix. metres and seconds are since the good fix before, in the window. `dropped` says why a fix counts for
-- nothing: 'inaccurate' or 'jump' (111), the latter once the day was computed.
CREATE VIEW IF NOT EXISTS {database}_ask.track{on_cluster} AS
WITH
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m, -- its mean diameter
    2000 AS acc_dm_max
SELECT
    driver_id, toTimeZone(ts, {tz:String}) AS ts, seq, lat_e7 / 1e7 AS lat, lng_e7 / 1e7 AS lng,
    CAST(if(speed_cms = 65535, NULL, speed_cms / 100), 'Nullable(Float32)') AS speed,
    CAST(if(heading_cdeg = 65535, NULL, heading_cdeg / 100), 'Nullable(Float32)') AS heading,
    CAST(if(alt_dm = 2147483647, NULL, alt_dm / 10), 'Nullable(Float32)') AS alt,
    CAST(if(acc_dm = 65535, NULL, acc_dm / 10), 'Nullable(Float32)') AS acc,
    if(dropped = '', (ms - before_ms) / 1000, 0) AS seconds,
    if(dropped = '', earth_m * asin(least(1., sqrt(pow(x - before_x, 2) + pow(y - before_y, 2) + pow(z - before_z, 2)) / earth_m)), 0) AS metres,
    dropped
FROM
(
    SELECT
        *,
        lagInFrame(ms, 1, ms) OVER one_by_one AS before_ms,
        lagInFrame(x, 1, x) OVER one_by_one AS before_x, lagInFrame(y, 1, y) OVER one_by_one AS before_y, lagInFrame(z, 1, z) OVER one_by_one AS before_z
    FROM
    (
        SELECT
            driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm,
            toUnixTimestamp64Milli(ts) AS ms,
            equator_m / sqrt(1 - e2 * pow(sin(radians(lat_e7 / 1e7)), 2)) AS curve_m,
            curve_m * cos(radians(lat_e7 / 1e7)) * cos(radians(lng_e7 / 1e7)) AS x,
            curve_m * cos(radians(lat_e7 / 1e7)) * sin(radians(lng_e7 / 1e7)) AS y,
            curve_m * (1 - e2) * sin(radians(lat_e7 / 1e7)) AS z,
            multiIf(
                acc_dm != 65535 AND acc_dm > acc_dm_max, 'inaccurate',
                (driver_id, ms, seq, lat_e7, lng_e7) GLOBAL IN (
                    SELECT toString(driver_id), began_ms, piece, lat_e7, lng_e7
                    FROM {database}.driver_days_state{all} FINAL
                    ARRAY JOIN parts.kind AS kind, parts.began_ms AS began_ms, parts.piece AS piece, parts.lat_e7 AS lat_e7, parts.lng_e7 AS lng_e7
                    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                        AND day >= toDate(toTimeZone(parseDateTime64BestEffort({from:String}, 3, {tz:String}), 'UTC'))
                        AND day <= toDate(toTimeZone(parseDateTime64BestEffort({to:String}, 3, {tz:String}), 'UTC'))
                        AND has(parts.kind, 'dropped') AND kind = 'dropped'), 'jump',
                '') AS dropped
        FROM {database}.positions{all} FINAL
        WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
            AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
            AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
    )
    WINDOW one_by_one AS (PARTITION BY driver_id, dropped = '' ORDER BY ms, seq, lat_e7, lng_e7 ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'track(driver, from, to, tz)'
