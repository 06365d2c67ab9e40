-- Computes driver_days_state from the fixes every five minutes. 360 has the definition: 0.1.0 had a former one here, which a new database
-- would have to plan and run for nothing.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.driver_days_mv{on_cluster}
REFRESH EVERY 5 MINUTE APPEND TO {database}.driver_days_state EMPTY
AS SELECT day, driver_id, parts, rows, computed_at FROM {database}.driver_days_state WHERE false
