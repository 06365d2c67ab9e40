-- Cuts what drivers did into pieces of trips and stops, every hour: as driver_quarters_mv (027) does, with the same legs, the same watermark,
-- and the same bound. The touched blocks of three hours and their two neighbours are written, from these and one more on each side.
-- Blocks begin at fixed times, and whether a piece continues is decided by fixes at most two and a half hours away. So a row depends
-- on the fixes alone, not on what was touched.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.driver_blocks_mv
REFRESH EVERY 1 HOUR APPEND TO {database}.driver_blocks_state AS
WITH
    10800000 AS block_ms, -- also 10,800 s below
    3600000 AS gap_ms,
    180000 AS still_ms, -- also in the RANGE frames below, which take a literal: 179,999, because they include their ends
    200 AS still_m,
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m, -- its mean diameter
    (SELECT max(inserted_until) FROM {database}.driver_blocks_state) AS done_until,
    changed AS
    (
        SELECT DISTINCT partition_id FROM system.parts
        WHERE database = '{database}' AND table = 'positions' AND active AND modification_time >= done_until - INTERVAL 10 MINUTE
    ),
    (
        SELECT if(count() < 20000000, now64(3), max(inserted_at))
        FROM
        (
            SELECT inserted_at FROM {database}.positions
            WHERE inserted_at > done_until AND _partition_id IN (SELECT partition_id FROM changed)
            ORDER BY inserted_at LIMIT 20000000
        )
    ) AS until,
    touched AS
    (
        SELECT DISTINCT driver_id, intDiv(toUnixTimestamp(ts), 10800) AS block
        FROM {database}.positions
        WHERE inserted_at > done_until - INTERVAL 10 MINUTE AND inserted_at <= until AND _partition_id IN (SELECT partition_id FROM changed)
    )
SELECT
    driver_id,
    toDateTime(number * 10800, 'UTC') AS block,
    length(pieces) = 1 AND continues AND goes_on AS is_through,
    countIf(is_real) > 0 AND argMin(run_continues, run) AND argMin(is_real, run) AS continues,
    countIf(is_real) > 0 AND argMax(run_goes_on, run) AND argMax(is_real, run) AS goes_on,
    arraySort(groupArrayIf((began, ended, run_kind, run_metres, run_fixes, run_lat, run_lng, run_to_lat, run_to_lng, run_speed), is_real)) AS pieces,
    now64(3) AS computed_at,
    until AS inserted_until
FROM
(
    SELECT
        driver_id, number, episode AS run,
        any(kind) AS run_kind,
        run_kind IN ('trip', 'stop') AS is_real,
        argMin(kind = before_kind, place) AS run_continues, argMax(kind = after_kind, place) AS run_goes_on,
        min(began_ms) AS began, max(ended_ms) AS ended,
        sum(metres) AS run_metres, count() AS run_fixes, max(speed) AS run_speed,
        avg(x) AS middle_of_x, avg(y) AS middle_of_y, avg(z) AS middle_of_z,
        degrees(atan2(middle_of_z, (1 - e2) * sqrt(pow(middle_of_x, 2) + pow(middle_of_y, 2)))) AS middle_lat,
        degrees(atan2(middle_of_y, middle_of_x)) AS middle_lng,
        toInt32(round(1e7 * if(run_kind = 'stop', middle_lat, argMin(from_lat, place)))) AS run_lat,
        toInt32(round(1e7 * if(run_kind = 'stop', middle_lng, argMin(from_lng, place)))) AS run_lng,
        if(run_kind = 'stop', run_lat, toInt32(round(1e7 * argMax(lat, place)))) AS run_to_lat,
        if(run_kind = 'stop', run_lng, toInt32(round(1e7 * argMax(lng, place)))) AS run_to_lng
    FROM
    (
        SELECT
            driver_id, place, episode, kind, before_kind, after_kind, began_ms, ended_ms, from_lat, from_lng, lat, lng, speed, x, y, z,
            intDiv(ended_ms, block_ms) AS number,
            earth_m * asin(least(1, sqrt(pow(x - from_x, 2) + pow(y - from_y, 2) + pow(z - from_z, 2)) / earth_m)) AS own_metres,
            earth_m * asin(least(1, sqrt(pow(from_x - before_x, 2) + pow(from_y - before_y, 2) + pow(from_z - before_z, 2)) / earth_m)) AS metres_from_stop,
            earth_m * asin(least(1, sqrt(pow(x - after_x, 2) + pow(y - after_y, 2) + pow(z - after_z, 2)) / earth_m)) AS metres_to_stop,
            if(kind = 'trip', own_metres + if(before_kind = 'stop', metres_from_stop, 0) + if(after_kind = 'stop', metres_to_stop, 0), 0) AS metres
        FROM
        (
            SELECT
                *,
                lagInFrame(middle_x) OVER around AS before_x, lagInFrame(middle_y) OVER around AS before_y, lagInFrame(middle_z) OVER around AS before_z,
                leadInFrame(middle_x) OVER around AS after_x, leadInFrame(middle_y) OVER around AS after_y, leadInFrame(middle_z) OVER around AS after_z,
                leadInFrame(kind, 1, 'end') OVER around AS after_kind
            FROM
            (
                SELECT
                    *,
                    avg(x) OVER together AS middle_x, avg(y) OVER together AS middle_y, avg(z) OVER together AS middle_z
                FROM
                (
                    SELECT
                        *,
                        sum(kind != before_kind OR kind IN ('gap', 'start')) OVER (PARTITION BY driver_id ORDER BY place ROWS UNBOUNDED PRECEDING) AS episode
                    FROM
                    (
                        SELECT
                            *,
                            lagInFrame(kind, 1, 'none') OVER (PARTITION BY driver_id ORDER BY place ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before_kind
                        FROM
                        (
                            SELECT
                                *,
                                multiIf(
                                    NOT is_near, 'start',
                                    NOT is_joined, 'gap',
                                    max(is_still) OVER (PARTITION BY driver_id ORDER BY ended_ms RANGE BETWEEN CURRENT ROW AND 179999 FOLLOWING), 'stop',
                                    'trip') AS kind
                            FROM
                            (
                                SELECT
                                    *,
                                    min(joined_ms) OVER lately <= ended_ms - still_ms
                                        AND pow(max(greatest(x, joined_x)) OVER lately - min(least(x, joined_x)) OVER lately, 2)
                                          + pow(max(greatest(y, joined_y)) OVER lately - min(least(y, joined_y)) OVER lately, 2)
                                          + pow(max(greatest(z, joined_z)) OVER lately - min(least(z, joined_z)) OVER lately, 2) <= still_m * still_m AS is_still
                                FROM
                                (
                                    SELECT
                                        *,
                                        place > 1 AND ended_ms - began_ms <= block_ms AS is_near,
                                        place > 1 AND ended_ms - began_ms <= gap_ms AS is_joined,
                                        if(is_joined, began_ms, ended_ms) AS joined_ms,
                                        if(is_joined, from_x, x) AS joined_x, if(is_joined, from_y, y) AS joined_y, if(is_joined, from_z, z) AS joined_z
                                    FROM
                                    (
                                        SELECT
                                            driver_id, ended_ms, lat, lng, speed, x, y, z,
                                            row_number() OVER one_by_one AS place,
                                            lagInFrame(ended_ms, 1, ended_ms) OVER one_by_one AS began_ms,
                                            lagInFrame(lat, 1, lat) OVER one_by_one AS from_lat, lagInFrame(lng, 1, lng) OVER one_by_one AS from_lng,
                                            lagInFrame(x, 1, x) OVER one_by_one AS from_x, lagInFrame(y, 1, y) OVER one_by_one AS from_y, lagInFrame(z, 1, z) OVER one_by_one AS from_z
                                        FROM
                                        (
                                            SELECT
                                                driver_id, toUnixTimestamp64Milli(ts) AS ended_ms, seq, lat, lng, speed,
                                                equator_m / sqrt(1 - e2 * pow(sin(radians(lat)), 2)) AS curve_m,
                                                curve_m * cos(radians(lat)) * cos(radians(lng)) AS x,
                                                curve_m * cos(radians(lat)) * sin(radians(lng)) AS y,
                                                curve_m * (1 - e2) * sin(radians(lat)) AS z
                                            FROM {database}.fixes
                                            WHERE driver_id IN (SELECT driver_id FROM touched)
                                                AND ts >= toDateTime64((SELECT min(block) - 2 FROM touched) * 10800, 3, 'UTC')
                                                AND ts < toDateTime64((SELECT max(block) + 3 FROM touched) * 10800, 3, 'UTC')
                                                AND (driver_id, intDiv(toUnixTimestamp(ts), 10800)) IN
                                                    (SELECT driver_id, block + shift FROM touched ARRAY JOIN [-2, -1, 0, 1, 2] AS shift)
                                        )
                                        WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY ended_ms, seq, lat, lng ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
                                    )
                                )
                                WINDOW lately AS (PARTITION BY driver_id ORDER BY ended_ms RANGE BETWEEN 179999 PRECEDING AND CURRENT ROW)
                            )
                        )
                    )
                )
                WINDOW together AS (PARTITION BY driver_id, episode ORDER BY ended_ms RANGE BETWEEN 179999 PRECEDING AND 179999 FOLLOWING)
            )
            WINDOW around AS (PARTITION BY driver_id ORDER BY place ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
        )
    )
    WHERE (driver_id, number) IN (SELECT driver_id, block + shift FROM touched ARRAY JOIN [-1, 0, 1] AS shift)
    GROUP BY driver_id, number, episode
)
GROUP BY driver_id, number
SETTINGS max_insert_threads = 1, min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 100000000000, max_bytes_before_external_sort = 1000000000
