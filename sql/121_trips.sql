-- Trips for people and BI tools: a view without parameters over `episodes`.
CREATE VIEW IF NOT EXISTS {database}.trips{on_cluster}
(
    driver_id   String               COMMENT 'Who',
    began       DateTime64(3, 'UTC') COMMENT 'Time of its first fix',
    ended       DateTime64(3, 'UTC') COMMENT 'Time of its last fix, so far',
    seconds     Float64              COMMENT 'From first to last',
    metres      Float64              COMMENT 'Metres driven, from the place of the stop before to that of the stop after it',
    fixes       UInt64               COMMENT 'Fixes that came after its first',
    lat         Float64              COMMENT 'Where it began: WGS84 degrees north',
    lng         Float64              COMMENT 'Degrees east',
    to_lat      Float64              COMMENT 'Where it ended: degrees north',
    to_lng      Float64              COMMENT 'Degrees east',
    speed_max   Nullable(Float32)    COMMENT 'The highest speed sent, in metres per second, NULL if none'
)
AS SELECT driver_id, began, ended, seconds, metres, fixes, lat, lng, to_lat, to_lng, speed_max
FROM {database}_ask.episodes(driver = '', from = '1970-01-05', to = '2149-06-01', tz = 'UTC')
WHERE kind = 'trip'
COMMENT 'Trips: from where to where, how far, how long. Each whole and once. Computed every five minutes; rollups says how far'
