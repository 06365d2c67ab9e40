-- Merges fewer and larger groups of parts. ClickHouse merges parts once they are together this many times as large as the largest of them, 5 by
-- default. With 10, inserts and their merges cost a fifth less CPU, and a query reads seven parts of the current month instead of four
-- (docs/scale.md#merges).
ALTER TABLE {database}.positions{on_cluster} MODIFY SETTING merge_selector_base = 10;

ALTER TABLE {database}.last_positions_state{on_cluster} MODIFY SETTING merge_selector_base = 10
