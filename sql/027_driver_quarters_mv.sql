-- Counts quarters of an hour again, every hour. No insert waits for it. What was inserted since the last time (ten minutes of overlap: a
-- commit follows its inserted_at), at most 20 million fixes at once, says which drivers and blocks of three hours were touched. The
-- touched blocks and their two neighbours are written, from these and one more on each side: what happens to a leg (015) depends on
-- no fix farther away than three hours. That is why a gap longer than that has no straight line here, and why the middle of a
-- stop is that of its first and its last three minutes. inserted_at is read in those months alone in which something changed.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.driver_quarters_mv
REFRESH EVERY 1 HOUR APPEND TO {database}.driver_quarters_state AS
WITH
    10800000 AS block_ms, -- also 10,800 s below
    900000 AS quarter_ms,
    3600000 AS gap_ms,
    180000 AS still_ms, -- also in the RANGE frames below, which take a literal: 179,999, because they include their ends
    200 AS still_m,
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m, -- its mean diameter
    (SELECT max(inserted_until) FROM {database}.driver_quarters_state) AS done_until,
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
    toDateTime(number * 900, 'UTC') AS quarter,
    countIf(is_last) AS fixes,
    sum(metres * share) AS distance_m,
    sumIf(untracked, is_last) AS untracked_m,
    sumIf(joined_s * share, kind = 'trip') AS moving_s,
    sum(joined_s * share) AS tracked_s,
    sumIf(speed_cms, is_last) / 100 AS speed_sum,
    countIf(is_last AND speed IS NOT NULL) AS speed_count,
    maxIf(speed, is_last) AS speed_max,
    sumIf(lost, is_last) AS missing,
    now64(3) AS computed_at,
    until AS inserted_until
FROM
(
    SELECT
        driver_id, kind, speed, lost, number,
        ifNull(toUInt64(round(speed * 100)), 0) AS speed_cms,
        number = intDiv(ended_ms, quarter_ms) AS is_last,
        if(is_joined, (ended_ms - began_ms) / 1000, 0) AS joined_s,
        if(joined_ms = ended_ms, is_last, (least(ended_ms, (number + 1) * quarter_ms) - greatest(joined_ms, number * quarter_ms)) / (ended_ms - joined_ms)) AS share,
        earth_m * asin(least(1, sqrt(pow(x - from_x, 2) + pow(y - from_y, 2) + pow(z - from_z, 2)) / earth_m)) AS own_metres,
        earth_m * asin(least(1, sqrt(pow(from_x - before_x, 2) + pow(from_y - before_y, 2) + pow(from_z - before_z, 2)) / earth_m)) AS metres_from_stop,
        earth_m * asin(least(1, sqrt(pow(x - after_x, 2) + pow(y - after_y, 2) + pow(z - after_z, 2)) / earth_m)) AS metres_to_stop,
        if(kind = 'trip', own_metres + if(before_kind = 'stop', metres_from_stop, 0) + if(after_kind = 'stop', metres_to_stop, 0), 0) AS metres,
        if(kind = 'gap', own_metres, 0) AS untracked
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
                                    if(is_near AND seq > 0 AND from_seq > 0 AND seq > from_seq, seq - from_seq - 1, 0) AS lost,
                                    if(is_joined, began_ms, ended_ms) AS joined_ms,
                                    if(is_joined, from_x, x) AS joined_x, if(is_joined, from_y, y) AS joined_y, if(is_joined, from_z, z) AS joined_z
                                FROM
                                (
                                    SELECT
                                        driver_id, ended_ms, seq, speed, x, y, z,
                                        row_number() OVER one_by_one AS place,
                                        lagInFrame(ended_ms, 1, ended_ms) OVER one_by_one AS began_ms, lagInFrame(seq, 1, seq) OVER one_by_one AS from_seq,
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
    ARRAY JOIN range(intDiv(joined_ms, quarter_ms), intDiv(ended_ms, quarter_ms) + 1) AS number
)
WHERE (driver_id, intDiv(number, 12)) IN (SELECT driver_id, block + shift FROM touched ARRAY JOIN [-1, 0, 1] AS shift)
GROUP BY driver_id, number
SETTINGS max_insert_threads = 1, min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 100000000000, max_bytes_before_external_sort = 1000000000
