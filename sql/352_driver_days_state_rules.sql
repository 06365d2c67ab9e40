-- Adds to each day the hash of the rules with which it was computed, and the highest speed derived from fixes without a speed. Days that
-- were computed before this migration have the hash 0. No rules have that hash, so these days are computed again.
ALTER TABLE {database}.driver_days_state{on_cluster}
    ADD COLUMN IF NOT EXISTS rules UInt64 COMMENT 'Hash of the limits in trip_rules_in_force with which the day was computed',
    ADD COLUMN IF NOT EXISTS derived_cms UInt16 COMMENT 'Highest speed derived from fixes without a speed, centimetres per second; 0 if none',
    ADD COLUMN IF NOT EXISTS derived Tuple(quarters Array(UInt32), cms Array(UInt16)) COMMENT 'Quarters of an hour, numbered from 1970-01-01 UTC, and the highest speed derived in each, centimetres per second; empty if no speed was derived',
    ADD COLUMN IF NOT EXISTS trip_m Float32 COMMENT 'Limit trip_m of trip_rules_in_force with which the day was computed, metres: a silence that ends at most this far from where it began counts as parking';

{shards}ALTER TABLE {database}.driver_days_state_all{on_cluster}
    ADD COLUMN IF NOT EXISTS rules UInt64 COMMENT 'Hash of the limits in trip_rules_in_force with which the day was computed',
    ADD COLUMN IF NOT EXISTS derived_cms UInt16 COMMENT 'Highest speed derived from fixes without a speed, centimetres per second; 0 if none',
    ADD COLUMN IF NOT EXISTS derived Tuple(quarters Array(UInt32), cms Array(UInt16)) COMMENT 'Quarters of an hour, numbered from 1970-01-01 UTC, and the highest speed derived in each, centimetres per second; empty if no speed was derived',
    ADD COLUMN IF NOT EXISTS trip_m Float32 COMMENT 'Limit trip_m of trip_rules_in_force with which the day was computed, metres: a silence that ends at most this far from where it began counts as parking'
