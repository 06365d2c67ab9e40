-- Adds to each day the hash of the rules by which it was computed, and the highest speed derived from fixes without a speed. Days that were
-- computed before this migration have the hash 0, which no rules have, so they are computed again.
ALTER TABLE {database}.driver_days_state{on_cluster}
    ADD COLUMN IF NOT EXISTS rules UInt64 COMMENT 'Hash of the limits in trip_rules_in_force',
    ADD COLUMN IF NOT EXISTS derived_cms UInt16 COMMENT 'The highest speed between fixes without a speed, in centimetres per second; 0 if there is none',
    ADD COLUMN IF NOT EXISTS derived Tuple(quarters Array(UInt32), cms Array(UInt16)) COMMENT 'The same of each quarter of an hour since 1970; empty if there is none',
    ADD COLUMN IF NOT EXISTS trip_m Float32 COMMENT 'Metres within which a silence that ends where it began is parking';

{shards}ALTER TABLE {database}.driver_days_state_all{on_cluster}
    ADD COLUMN IF NOT EXISTS rules UInt64 COMMENT 'Hash of the limits in trip_rules_in_force',
    ADD COLUMN IF NOT EXISTS derived_cms UInt16 COMMENT 'The highest speed between fixes without a speed, in centimetres per second; 0 if there is none',
    ADD COLUMN IF NOT EXISTS derived Tuple(quarters Array(UInt32), cms Array(UInt16)) COMMENT 'The same of each quarter of an hour since 1970; empty if there is none',
    ADD COLUMN IF NOT EXISTS trip_m Float32 COMMENT 'Metres within which a silence that ends where it began is parking'
