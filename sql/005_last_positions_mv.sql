-- Feeds last_positions_state with every insert into positions. Change it by ALTER TABLE ... MODIFY QUERY:
-- rows that arrive while a view is dropped never reach it.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.last_positions_mv TO {database}.last_positions_state AS
SELECT
    driver_id,
    max((ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at)) AS last
FROM {database}.positions
GROUP BY driver_id
