-- The newest fix of each driver, in the columns of `fixes`. FINAL selects the newest fix: a GROUP BY would hold all drivers in memory.
CREATE OR REPLACE VIEW {database}.last_positions{on_cluster}
(
{shown}
)
AS SELECT {shown_names}
FROM {database}.last_positions_state{all} FINAL
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'Last position of each driver: one row per driver, its newest fix by ts, then by seq'
