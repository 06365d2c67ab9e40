-- The limits that define a stop, a trip and a jump: one row for the fleet, and one for each driver with another kind of vehicle. A new row
-- replaces the old one, and the roll-up computes all days of these drivers again (docs/trips.md). Without a row, the fleet's preset is car.
CREATE TABLE IF NOT EXISTS {database}.trip_rules{on_cluster}
(
    driver_id  String COMMENT 'Driver id; empty for the fleet',
    preset     Enum8('' = 0, 'car' = 1, 'truck' = 2, 'bicycle' = 3, 'walker' = 4, 'rail' = 5)
                                 COMMENT 'Kind of vehicle, for all limits that are NULL here. Empty: no rules of its own any more',
    speed_max  Nullable(Float64) COMMENT 'Metres per second that the vehicle cannot exceed; NULL: the preset''s',
    radius_m   Nullable(Float64) COMMENT 'Metres around a stop within which the driver is still there; NULL: the preset''s',
    stop_s     Nullable(Float64) COMMENT 'Seconds that a stop lasts at least; NULL: the preset''s',
    trip_m     Nullable(Float64) COMMENT 'Metres that a trip leads away from a stop at least, if it comes back there; NULL: the preset''s',
    trip_s     Nullable(Float64) COMMENT 'Seconds that it lasts at least; NULL: the preset''s',
    spike_s    Nullable(Float64) COMMENT 'Seconds that a driver may be away before a stop has lasted for stop_s; NULL: the preset''s',
    acc_max    Nullable(Float64) COMMENT 'Metres of accuracy beyond which a fix is dropped; NULL: the preset''s',
    written_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time of the row: the newest of a driver counts'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY driver_id
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Limits of trips and stops, for the fleet and for single drivers. trip_rules_in_force has what follows from them'
