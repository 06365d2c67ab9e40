-- Stops for people and BI tools: a view without parameters over `episodes`.
CREATE VIEW IF NOT EXISTS {database}.stops{on_cluster}
(
    driver_id   String               COMMENT 'Who',
    began       DateTime64(3, 'UTC') COMMENT 'Time of its first fix',
    ended       DateTime64(3, 'UTC') COMMENT 'Time of its last fix, so far',
    seconds     Float64              COMMENT 'From first to last',
    fixes       UInt64               COMMENT 'Fixes that came after its first',
    lat         Float64              COMMENT 'Its place: WGS84 degrees north',
    lng         Float64              COMMENT 'Degrees east'
)
AS SELECT driver_id, began, ended, seconds, fixes, lat, lng
FROM {database}_ask.episodes(driver = '', from = '1970-01-05', to = '2149-06-01', tz = 'UTC')
WHERE kind = 'stop'
COMMENT 'Where somebody stood still for three minutes or more. Each whole and once. Computed every five minutes; rollups says how far'
