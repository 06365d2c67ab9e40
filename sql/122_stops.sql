-- Stops for people and BI tools: a view without parameters over `episodes`.
CREATE VIEW IF NOT EXISTS {database}.stops{on_cluster}
(
    driver_id   String               COMMENT 'Driver id',
    began       DateTime64(3, 'UTC') COMMENT 'Time of the first fix, UTC',
    ended       DateTime64(3, 'UTC') COMMENT 'Time of the last fix so far, UTC',
    seconds     Float64              COMMENT 'Duration from began to ended, seconds',
    fixes       UInt64               COMMENT 'Number of fixes after the first one',
    lat         Float64              COMMENT 'Latitude of the stop, WGS84 degrees north',
    lng         Float64              COMMENT 'Longitude of the stop, WGS84 degrees east'
)
AS SELECT driver_id, began, ended, seconds, fixes, lat, lng
FROM {database}_ask.episodes(driver = '', from = '1970-01-05', to = '2149-06-01', tz = 'UTC')
WHERE kind = 'stop'
COMMENT 'Stops: place and duration. A stop is one row even if it crosses midnight. It lasts at least stop_s of trip_rules_in_force, 3 minutes for a car; next to a silence or to midnight UTC it may be shorter. Updated every five minutes; for the lag, query the view rollups'
