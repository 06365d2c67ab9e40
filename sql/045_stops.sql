-- What people and BI tools read.
CREATE VIEW IF NOT EXISTS {database}.stops
(
    driver_id   String               COMMENT 'Who',
    began       DateTime64(3, 'UTC') COMMENT 'Time of its first fix',
    ended       DateTime64(3, 'UTC') COMMENT 'Time of its last fix, so far',
    seconds     Float64              COMMENT 'From first to last: 180 or more',
    fixes       UInt32               COMMENT 'Fixes that came after its first',
    lat         Float64              COMMENT 'Its middle: WGS84 degrees north',
    lng         Float64              COMMENT 'Degrees east',
    computed_at DateTime64(3, 'UTC') COMMENT 'When this row was computed'
)
AS SELECT
    driver_id, began, ended, (toUnixTimestamp64Milli(ended) - toUnixTimestamp64Milli(began)) / 1000 AS seconds, fixes,
    lat_e7 / 1e7 AS lat, lng_e7 / 1e7 AS lng, computed_at
FROM {database}.episodes_state FINAL
WHERE kind = 'stop'
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'Where somebody stood still for three minutes or more. Each whole and once. Computed every hour, and rollups says how far'
