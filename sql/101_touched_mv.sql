-- Feeds touched with every insert into positions.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.touched_mv{on_cluster} TO {database}.touched AS
SELECT
    arrayJoin(arrayDistinct([toDate(ts - INTERVAL 2 HOUR), toDate(ts + INTERVAL 2 HOUR)])) AS day,
    driver_id, count() AS rows, max(inserted_at) AS touched_at
FROM {database}.positions
GROUP BY day, driver_id
