-- Computes driver_days_state from the fixes every five minutes. The query here is only a placeholder, which returns no rows: sql/360 replaces
-- it. Release 0.1.0 had a complete query here, which a new database would plan and run in vain.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.driver_days_mv{on_cluster}
REFRESH EVERY 5 MINUTE APPEND TO {database}.driver_days_state EMPTY
AS SELECT day, driver_id, parts, rows, computed_at FROM {database}.driver_days_state WHERE false
