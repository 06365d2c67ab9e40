-- Counts the fixes of cells again, every hour, with the watermark and the bound of driver_quarters_mv (027): the quarters of an hour of the
-- drivers of whom something came. Fixes do not vanish, so a row does not. geoToH3 took (longitude, latitude) before ClickHouse 25.5, and
-- (latitude, longitude) since: a cell that is known says which.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.cell_quarters_mv
REFRESH EVERY 1 HOUR APPEND TO {database}.cell_quarters_state AS
WITH
    (SELECT max(inserted_until) FROM {database}.cell_quarters_state) AS done_until,
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
        SELECT DISTINCT driver_id, intDiv(toUnixTimestamp(ts), 900) AS number
        FROM {database}.positions
        WHERE inserted_at > done_until - INTERVAL 10 MINUTE AND inserted_at <= until AND _partition_id IN (SELECT partition_id FROM changed)
    ),
    geoToH3(0., 90., 8) = 614859418697203711 AS is_lat_first
SELECT
    toDateTime(number * 900, 'UTC') AS quarter,
    cell,
    driver_id,
    count() AS fixes,
    now64(3) AS computed_at,
    until AS inserted_until
FROM
(
    SELECT driver_id, intDiv(toUnixTimestamp(ts), 900) AS number, if(is_lat_first, geoToH3(lat, lng, 8), geoToH3(lng, lat, 8)) AS cell
    FROM {database}.fixes
    WHERE driver_id IN (SELECT driver_id FROM touched)
        AND ts >= toDateTime64((SELECT min(number) FROM touched) * 900, 3, 'UTC')
        AND ts < toDateTime64((SELECT max(number) + 1 FROM touched) * 900, 3, 'UTC')
        AND (driver_id, intDiv(toUnixTimestamp(ts), 900)) IN (SELECT driver_id, number FROM touched)
)
GROUP BY number, cell, driver_id
SETTINGS max_insert_threads = 1, min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 100000000000, max_bytes_before_external_sort = 1000000000
