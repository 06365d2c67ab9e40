-- Feeds last_positions_state with every insert into positions, all columns, those that come later too. ClickHouse keeps one row a driver of
-- each insert (optimize_on_insert). Rows that arrive while it is not there do not reach it; where it makes the view, `migrate` reads all of `positions` once.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.last_positions_mv{on_cluster} TO {database}.last_positions_state
AS SELECT * FROM {database}.positions
COMMENT 'Feeds last_positions_state with every insert into positions'
