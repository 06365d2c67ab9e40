-- Trips for people and BI tools: a view without parameters over `episodes`.
CREATE VIEW IF NOT EXISTS {database}.trips{on_cluster}
(
    driver_id   String               COMMENT 'Driver id',
    began       DateTime64(3, 'UTC') COMMENT 'Time of the first fix, UTC',
    ended       DateTime64(3, 'UTC') COMMENT 'Time of the last fix so far, UTC',
    seconds     Float64              COMMENT 'Duration from began to ended, seconds',
    metres      Float64              COMMENT 'Distance driven, metres, measured from the place of the previous stop, if any, to the place of the next stop, if any',
    fixes       UInt64               COMMENT 'Number of fixes after the first one',
    lat         Float64              COMMENT 'Latitude of the start, WGS84 degrees north',
    lng         Float64              COMMENT 'Longitude of the start, WGS84 degrees east',
    to_lat      Float64              COMMENT 'Latitude of the end, WGS84 degrees north',
    to_lng      Float64              COMMENT 'Longitude of the end, WGS84 degrees east',
    speed_max   Nullable(Float32)    COMMENT 'Highest speed sent, metres per second; NULL: none'
)
AS SELECT driver_id, began, ended, seconds, metres, fixes, lat, lng, to_lat, to_lng, speed_max
FROM {database}_ask.episodes(driver = '', from = '1970-01-05', to = '2149-06-01', tz = 'UTC')
WHERE kind = 'trip'
COMMENT 'Trips: start, end, distance and duration. A trip is one row even if it crosses midnight. Updated every five minutes; for the lag, query the view rollups'
