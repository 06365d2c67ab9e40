-- By which rules a day was computed, and the speed of those whose devices send none. Days from before this version have the rules 0, which no
-- rules are, so they are computed again.
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
