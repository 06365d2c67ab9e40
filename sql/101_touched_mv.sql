-- Feeds touched with every insert into positions. sql/304 replaces this view.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.touched_mv{on_cluster} TO {database}.touched AS
SELECT
    arrayJoin(arrayDistinct([toDate(ts - INTERVAL 2 HOUR), toDate(ts + INTERVAL 2 HOUR)])) AS day,
    driver_id, count() AS rows, max(inserted_at) AS touched_at, maxIf(speed_cms, speed_cms != 65535) AS speed_max
FROM {database}.positions
GROUP BY day, driver_id
