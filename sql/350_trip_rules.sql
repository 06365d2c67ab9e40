-- The limits that define a stop, a trip and a jump: one row for the fleet, and one for each driver with another kind of vehicle. A new row
-- replaces the old one, and the roll-up computes all days of these drivers again (docs/trips.md). Without a row, the fleet's preset is car.
CREATE TABLE IF NOT EXISTS {database}.trip_rules{on_cluster}
(
    driver_id  String COMMENT 'Driver id; empty for the fleet',
    preset     Enum8('' = 0, 'car' = 1, 'truck' = 2, 'bicycle' = 3, 'walker' = 4, 'rail' = 5)
                                 COMMENT 'Kind of vehicle, whose limits count where a column is NULL. Empty: the driver has no rules of its own',
    speed_max  Nullable(Float64) COMMENT 'Highest possible speed of the vehicle, metres per second; NULL: that of the preset',
    radius_m   Nullable(Float64) COMMENT 'Radius of a stop, metres: within it the driver is still there; NULL: that of the preset',
    stop_s     Nullable(Float64) COMMENT 'Shortest duration of a stop, seconds; NULL: that of the preset',
    trip_m     Nullable(Float64) COMMENT 'Shortest way, metres, that a trip leads away from a stop if it comes back there; NULL: that of the preset',
    trip_s     Nullable(Float64) COMMENT 'Shortest duration of such a trip, seconds; NULL: that of the preset',
    spike_s    Nullable(Float64) COMMENT 'Longest absence, seconds, before a stop has lasted for stop_s; NULL: that of the preset',
    acc_max    Nullable(Float64) COMMENT 'Accuracy, metres, above which a fix is dropped; NULL: that of the preset',
    written_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time the row was written, UTC; the newest row counts'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY driver_id
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Limits of trips and stops, for the fleet and for single drivers. trip_rules_in_force has what follows from them'
