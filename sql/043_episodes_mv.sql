-- Glues pieces to trips and stops, after driver_blocks_mv (041). Rows of driver_blocks_state that were counted since the last time are
-- touched (ten minutes of overlap, for replicas, which count too: at most 5 million rows at once, or what one refresh wrote). Read are
-- these, their neighbours, and, where a neighbour is a part of something longer, all blocks as far as that reaches: so what is written is whole,
-- however long it is and whatever was touched. What begins in a touched block, was there, and is not glued any more is gone.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.episodes_mv
REFRESH EVERY 1 HOUR DEPENDS ON {database}.driver_blocks_mv APPEND TO {database}.episodes_state AS
WITH
    0.0066943799901413165 AS e2, -- of WGS84
    (SELECT max(inserted_until) FROM {database}.episodes_state) AS done_until,
    (
        SELECT max(inserted_until)
        FROM (SELECT inserted_until FROM {database}.driver_blocks_state WHERE inserted_until > done_until ORDER BY inserted_until LIMIT 5000000)
    ) AS until,
    touched AS
    (
        SELECT DISTINCT driver_id, block FROM {database}.driver_blocks_state
        WHERE inserted_until > done_until - INTERVAL 10 MINUTE AND inserted_until <= until
    ),
    beside AS (SELECT DISTINCT driver_id, block + shift AS block FROM touched ARRAY JOIN [-10800, 0, 10800] AS shift),
    -- Drivers who were in the middle of something longer, and all their blocks that are not.
    long AS
    (
        SELECT DISTINCT driver_id FROM {database}.driver_blocks_state FINAL
        WHERE (driver_id, block) IN (SELECT driver_id, block FROM beside) AND is_through
    ),
    edges AS
    (
        SELECT driver_id, arraySort(groupArray(toUnixTimestamp(block))) AS found FROM {database}.driver_blocks_state FINAL
        WHERE driver_id IN (SELECT driver_id FROM long) AND NOT is_through
        GROUP BY driver_id
    ),
    wanted AS
    (
        SELECT driver_id, block FROM beside
        UNION DISTINCT
        SELECT
            driver_id,
            arrayJoin(range(
                toUInt32(coalesce(nullIf(arrayLast(edge -> edge < at, found), 0), at - 10800)),
                toUInt32(coalesce(nullIf(arrayFirst(edge -> edge > at, found), 0), at + 10800)) + 1, 10800))::DateTime('UTC') AS block
        FROM (SELECT driver_id, toUnixTimestamp(block) AS at FROM touched WHERE driver_id IN (SELECT driver_id FROM long)) AS touched
        INNER JOIN edges USING driver_id
    )
SELECT
    driver_id, kind, began,
    argMax(last, is_new) AS ended,
    argMax(way, is_new) AS metres, argMax(count, is_new) AS fixes,
    argMax(from_lat, is_new) AS lat_e7, argMax(from_lng, is_new) AS lng_e7,
    argMax(to_lat, is_new) AS to_lat_e7, argMax(to_lng, is_new) AS to_lng_e7,
    argMax(tuple(fastest), is_new).1 AS speed_max,
    argMax(home, is_new) AS block,
    now64(3) AS computed_at,
    until AS inserted_until,
    NOT max(is_new) AS is_gone
FROM
(
    SELECT
        driver_id, any(piece.kind) AS kind,
        fromUnixTimestamp64Milli(min(piece.began_ms), 'UTC') AS began, fromUnixTimestamp64Milli(max(piece.ended_ms), 'UTC') AS last,
        toFloat32(sum(piece.metres)) AS way, toUInt32(sum(piece.fixes)) AS count,
        sum(piece.fixes * x) AS middle_x, sum(piece.fixes * y) AS middle_y, sum(piece.fixes * z) AS middle_z,
        toInt32(round(1e7 * degrees(atan2(middle_z, (1 - e2) * sqrt(pow(middle_x, 2) + pow(middle_y, 2)))))) AS middle_lat,
        toInt32(round(1e7 * degrees(atan2(middle_y, middle_x)))) AS middle_lng,
        if(kind = 'stop', middle_lat, argMin(piece.lat_e7, place)) AS from_lat, if(kind = 'stop', middle_lng, argMin(piece.lng_e7, place)) AS from_lng,
        if(kind = 'stop', middle_lat, argMax(piece.to_lat_e7, place)) AS to_lat, if(kind = 'stop', middle_lng, argMax(piece.to_lng_e7, place)) AS to_lng,
        max(piece.speed_max) AS fastest,
        argMin(block, place) AS home,
        1 AS is_new
    FROM
    (
        SELECT
            *,
            sum(begins) OVER (PARTITION BY driver_id ORDER BY place ROWS UNBOUNDED PRECEDING) AS episode
        FROM
        (
            SELECT
                driver_id, block, piece,
                (toUnixTimestamp(block), number) AS place,
                number > 1 OR NOT continues OR is_headless AS begins,
                number = 1 AND continues AND block != last_block + 10800 AS is_headless,
                number = length(pieces) AND goes_on AND next_block != block + 10800 AS is_cut,
                1 / sqrt(1 - e2 * pow(sin(radians(piece.lat_e7 / 1e7)), 2)) AS curve,
                curve * cos(radians(piece.lat_e7 / 1e7)) * cos(radians(piece.lng_e7 / 1e7)) AS x,
                curve * cos(radians(piece.lat_e7 / 1e7)) * sin(radians(piece.lng_e7 / 1e7)) AS y,
                curve * (1 - e2) * sin(radians(piece.lat_e7 / 1e7)) AS z
            FROM
            (
                SELECT
                    driver_id, block, continues, goes_on, pieces,
                    lagInFrame(block, 1, toDateTime(0, 'UTC')) OVER in_order AS last_block, leadInFrame(block, 1, toDateTime(0, 'UTC')) OVER in_order AS next_block
                FROM {database}.driver_blocks_state FINAL
                WHERE (driver_id, block) IN (SELECT driver_id, block FROM wanted)
                WINDOW in_order AS (PARTITION BY driver_id ORDER BY block ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
            )
            ARRAY JOIN pieces AS piece, arrayEnumerate(pieces) AS number
        )
    )
    GROUP BY driver_id, episode
    HAVING NOT max(is_headless) AND NOT max(is_cut)
    UNION ALL
    SELECT
        driver_id, kind, began, ended AS last, metres AS way, fixes AS count, NULL, NULL, NULL, NULL, NULL,
        lat_e7 AS from_lat, lng_e7 AS from_lng, to_lat_e7 AS to_lat, to_lng_e7 AS to_lng, speed_max AS fastest, block AS home, 0 AS is_new
    FROM {database}.episodes_state FINAL
    WHERE (driver_id, block) IN (SELECT driver_id, block FROM touched)
        AND toDate(began) >= toDate((SELECT min(block) FROM touched) - INTERVAL 1 HOUR)
        AND toDate(began) <= toDate((SELECT max(block) FROM touched) + INTERVAL 3 HOUR)
)
GROUP BY driver_id, kind, began
SETTINGS max_insert_threads = 1, min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 100000000000, max_bytes_before_external_sort = 1000000000, optimize_move_to_prewhere_if_final = 1
