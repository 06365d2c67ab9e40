-- What analysts query: plain units, each fix once. ClickHouse tests conditions on columns of the sorting key (driver, time and place) before it
-- reads the other columns. It tests other conditions only after FINAL: an earlier test could remove the newer of two rows for one fix, so that
-- the older row would be returned.
CREATE OR REPLACE VIEW {database}.fixes{on_cluster}
(
{shown}
)
AS SELECT {shown_names}
FROM {database}.positions{all} FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'Every fix once, in plain units. Filter by ts, so that ClickHouse reads only the days in that range'
