-- Rows of driver_days_state, each with its connection to the driver's row of the day before. `days` and `episodes` read this view. since and
-- until are UTC dates. Each array of `parts` is a column of its own, so a query reads only those that it needs. sql/370 replaces this view.
CREATE VIEW IF NOT EXISTS {database}_ask.driver_days{on_cluster} AS
WITH
    6378137 AS equator_m,
    0.9966471893352525 AS flat, -- polar radius of WGS84, divided by the equatorial radius
    2 * 6371008.8 AS earth_m -- mean diameter of the earth
SELECT
    * EXCEPT (slope, before),
    before.1 AS before_ms, before.2 AS before_lat_e7, before.3 AS before_lng_e7,
    -- Whether the first part continues the last trip or stop of the day before.
    before.4 + 1 = day AND first_at > 0 AND before.5 = kinds[first_at] AND before_ms = begins_ms[first_at] AND before.5 != 'gap' AS is_continued,
    before.4 + 1 = day AND before.5 != 'dropped' AND first_at > 0 AND kinds[first_at] = 'gap' AND begins_ms[first_at] = ends_ms[first_at] AS is_after_gap,
    equator_m / sqrt(1 + slope * slope) AS axis_m, equator_m / sqrt(1 + before.6 * before.6) AS before_axis_m,
    is_after_gap * earth_m * asin(least(1., sqrt(pow(axis_m - before_axis_m, 2) + pow(flat * (slope * axis_m - before.6 * before_axis_m), 2)
        + axis_m * before_axis_m * pow(2 * sin(radians((to_lngs[first_at] - before_lng_e7) / 2e7)), 2)) / earth_m)) AS gap_m
FROM
(
    SELECT
        *,
        flat * tan(radians(to_lats[first_at] / 1e7)) AS slope,
        lagInFrame((ends_ms[last_at], to_lats[last_at], to_lngs[last_at], day, if(last_at = 0, 'dropped', kinds[last_at]), flat * tan(radians(to_lats[last_at] / 1e7))))
            OVER (PARTITION BY driver_id ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before
    FROM
    (
        SELECT
            toString(driver_id) AS driver_id, day, parts.quarter AS quarters, parts.piece AS pieces, parts.kind AS kinds,
            parts.began_ms AS begins_ms, parts.ended_ms AS ends_ms, parts.metres AS ways, parts.fixes AS counts,
            parts.speed_count AS speed_counts, parts.speed_max AS speeds,
            parts.lat_e7 AS lats, parts.lng_e7 AS lngs, parts.to_lat_e7 AS to_lats, parts.to_lng_e7 AS to_lngs,
            arrayFirstIndex(kind -> kind != 'dropped', kinds) AS first_at, arrayLastIndex(kind -> kind != 'dropped', kinds) AS last_at
        FROM {database}.driver_days_state{all} FINAL
        WHERE day >= toDate({since:String}) AND day <= toDate({until:String}) AND notEmpty(parts.kind)
            AND ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
    )
)
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'driver_days(driver, since, until)'
