-- Merges fewer and larger groups of parts. ClickHouse merges parts once they are together this many times as large as the largest of them, 5 by
-- default: then each row of positions is written about five times more until its part is large, which costs as much CPU as its insert. With 10, a
-- row is merged about half as often, and a query reads twice as many parts, ten instead of five in the current month (docs/scale.md#merges).
ALTER TABLE {database}.positions{on_cluster} MODIFY SETTING merge_selector_base = 10;

ALTER TABLE {database}.last_positions_state{on_cluster} MODIFY SETTING merge_selector_base = 10
