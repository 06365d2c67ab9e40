-- Rows of driver_days_state with what joins them to the day before. The base of `episodes`. since and until are UTC dates.
CREATE VIEW IF NOT EXISTS {database}_ask.driver_days{on_cluster} AS
WITH
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m, -- its mean diameter
    (lat, lng) -> (
        equator_m / sqrt(1 - e2 * pow(sin(radians(lat / 1e7)), 2)) * cos(radians(lat / 1e7)) * cos(radians(lng / 1e7)),
        equator_m / sqrt(1 - e2 * pow(sin(radians(lat / 1e7)), 2)) * cos(radians(lat / 1e7)) * sin(radians(lng / 1e7)),
        equator_m / sqrt(1 - e2 * pow(sin(radians(lat / 1e7)), 2)) * (1 - e2) * sin(radians(lat / 1e7))) AS on_axes
SELECT
    driver_id, day, parts, first_at,
    -- The first trip or stop is the rest of the last one of the day before.
    before.1 + 1 = day AND before.2 = kind AND before.3 = parts.began_ms[first_at] AND kind != 'gap' AS is_continued,
    before.1 + 1 = day AND before.2 != 'dropped' AND kind = 'gap' AND parts.began_ms[first_at] = parts.ended_ms[first_at] AS is_after_gap,
    before.3 AS before_ms, before.4 AS before_lat_e7, before.5 AS before_lng_e7,
    if(is_after_gap, earth_m * asin(least(1., L2Distance(
        on_axes(before_lat_e7, before_lng_e7), on_axes(parts.to_lat_e7[first_at], parts.to_lng_e7[first_at])) / earth_m)), 0) AS gap_m
FROM
(
    SELECT
        *,
        lagInFrame((day, parts.kind[last_at], parts.ended_ms[last_at], parts.to_lat_e7[last_at], parts.to_lng_e7[last_at])) OVER one_by_one AS before
    FROM
    (
        SELECT
            toString(driver_id) AS driver_id, day, parts,
            arrayFirstIndex(kind -> kind != 'dropped', parts.kind) AS first_at, arrayLastIndex(kind -> kind != 'dropped', parts.kind) AS last_at,
            parts.kind[first_at] AS kind
        FROM {database}.driver_days_state{all} FINAL
        WHERE day >= toDate({since:String}) AND day <= toDate({until:String}) AND notEmpty(parts.kind)
            AND ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
    )
    WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'driver_days(driver, since, until)'
