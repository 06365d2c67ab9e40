-- Feeds last_positions_state with every insert into positions. The query passes on all columns, including those that are added later. sql/306
-- replaces it. Rows that are inserted while the view does not exist are not passed on, so `milepost migrate` copies all rows of positions once
-- when it creates the view.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.last_positions_mv{on_cluster} TO {database}.last_positions_state
AS SELECT * FROM {database}.positions
COMMENT 'Feeds last_positions_state with every insert into positions'
