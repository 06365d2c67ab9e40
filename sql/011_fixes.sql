-- What analysts query: plain units, each fix once. Conditions on who, when and where are tested before the other columns are read. Only
-- columns of the sorting key are tested so early: of two rows for one fix, the older cannot come back.
CREATE OR REPLACE VIEW {database}.fixes{on_cluster}
(
{shown}
)
AS SELECT {shown_names}
FROM {database}.positions{all} FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'Every fix once, in plain units. Filter by ts, so that ClickHouse reads only the days in that range'
