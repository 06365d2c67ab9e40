-- What must not be done with it. Under FINAL, last.lat_e7 is read alone, without the ts that says which row is the newest: an old
-- place can win. PREWHERE, or a condition without FINAL, tests rows that are not the newest. No error says so.
ALTER TABLE {database}.last_positions_state
    MODIFY COMMENT 'Each driver''s newest fix, a row or more a driver until they merge. Ask last_positions instead. last.lat_e7 under FINAL, PREWHERE, and conditions without FINAL are wrong without an error'
