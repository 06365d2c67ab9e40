-- The limits that define a stop, a trip and a jump: one row for the fleet, and one for each driver with another kind of vehicle. A new row
-- replaces the old one, and the roll-up computes all days of the drivers concerned again (docs/trips.md). Without a row for the fleet,
-- the preset car applies to it.
CREATE TABLE IF NOT EXISTS {database}.trip_rules{on_cluster}
(
    driver_id  String COMMENT 'Driver id; empty for the fleet',
    preset     Enum8('' = 0, 'car' = 1, 'truck' = 2, 'bicycle' = 3, 'walker' = 4, 'rail' = 5)
                                 COMMENT 'Kind of vehicle. Its limits apply where a column is NULL. Empty: the row is ignored',
    speed_max  Nullable(Float64) COMMENT 'Highest possible speed of the vehicle, metres per second; NULL: that of the preset',
    radius_m   Nullable(Float64) COMMENT 'Radius of a stop, metres: a driver who stays within it has not left the stop; NULL: that of the preset',
    stop_s     Nullable(Float64) COMMENT 'Shortest duration of a stop, seconds; NULL: that of the preset',
    trip_m     Nullable(Float64) COMMENT 'Largest distance, metres, between two stays of stop_s or longer that count as one stop. Also the largest distance between the start and the end of a silence that counts as parking; NULL: that of the preset',
    trip_s     Nullable(Float64) COMMENT 'Longest absence, seconds, between two stays that count as one stop, if at least one of them lasts for stop_s; NULL: that of the preset',
    spike_s    Nullable(Float64) COMMENT 'Longest absence, seconds, between two stays that count as one stop, if both are shorter than stop_s; NULL: that of the preset',
    acc_max    Nullable(Float64) COMMENT 'Accuracy limit, metres: a fix with a larger acc is dropped; NULL: that of the preset',
    written_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time the row was written, UTC; the newest row counts',

    CONSTRAINT limits CHECK
        (speed_max IS NULL OR speed_max BETWEEN 0.5 AND 400) AND (radius_m IS NULL OR radius_m BETWEEN 1 AND 10000)
        AND (stop_s IS NULL OR stop_s BETWEEN 45 AND 86400) AND (trip_m IS NULL OR trip_m BETWEEN 0 AND 100000)
        AND (trip_s IS NULL OR trip_s BETWEEN 0 AND 86400) AND (spike_s IS NULL OR spike_s BETWEEN 0 AND 3600)
        AND (acc_max IS NULL OR acc_max BETWEEN 1 AND 100000)
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY driver_id
SETTINGS {no_tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Limits of trips and stops, for the fleet and for individual drivers. The view trip_rules_in_force shows the resulting limits'
