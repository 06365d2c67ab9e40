-- What people and BI tools read.
CREATE VIEW IF NOT EXISTS {database}.trips
(
    driver_id   String               COMMENT 'Who',
    began       DateTime64(3, 'UTC') COMMENT 'Time of its first fix',
    ended       DateTime64(3, 'UTC') COMMENT 'Time of its last fix, so far',
    seconds     Float64              COMMENT 'From first to last',
    metres      Float32              COMMENT 'Metres driven, from the middle of the stop before to that of the stop after it',
    fixes       UInt32               COMMENT 'Fixes that came after its first',
    lat         Float64              COMMENT 'Where it began: WGS84 degrees north',
    lng         Float64              COMMENT 'Degrees east',
    to_lat      Float64              COMMENT 'Where it ended: degrees north',
    to_lng      Float64              COMMENT 'Degrees east',
    speed_max   Nullable(Float32)    COMMENT 'The highest speed sent, in metres per second, NULL if none',
    computed_at DateTime64(3, 'UTC') COMMENT 'When this row was computed'
)
AS SELECT
    driver_id, began, ended, (toUnixTimestamp64Milli(ended) - toUnixTimestamp64Milli(began)) / 1000 AS seconds, metres, fixes,
    lat_e7 / 1e7 AS lat, lng_e7 / 1e7 AS lng, to_lat_e7 / 1e7 AS to_lat, to_lng_e7 / 1e7 AS to_lng, speed_max, computed_at
FROM {database}.episodes_state FINAL
WHERE kind = 'trip'
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'Trips: from where to where, how far, how long. Each whole and once. Computed every hour, and rollups says how far'
