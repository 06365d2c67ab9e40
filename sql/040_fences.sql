-- Geofences: areas with names, for fleet_ask.fence_visits, `milepost events` and the live map. Polygons are as in GeoJSON (RFC 7946): each is a
-- list of rings, first the outline, then holes. An area across the antimeridian is two polygons. A row replaces the earlier row with the same
-- name and valid_from.
CREATE TABLE IF NOT EXISTS {database}.fences{on_cluster}
(
    name        String               COMMENT 'Fence name',
    valid_from  DateTime64(3, 'UTC') DEFAULT toDateTime64(0, 3, 'UTC') COMMENT 'Start of validity, UTC: earlier fixes do not count',
    valid_until DateTime64(3, 'UTC') DEFAULT toDateTime64('2200-01-01', 3, 'UTC') COMMENT 'End of validity, UTC, exclusive: later fixes do not count',
    polygons    Array(Array(Array(Tuple(lng Float64, lat Float64)))) COMMENT 'Polygons as in GeoJSON: lists of rings (outline, then holes) of points, WGS84 degrees',
    written_at  DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time the row was written, UTC; the newest row counts',
    -- sql/065 adds these columns to older tables.
    speed_limit_kmh Nullable(Float64) COMMENT 'Speed limit inside, km/h; above it a driver is fast. NULL: none',
    stay_max_s      Nullable(UInt32)  COMMENT 'Longest stay inside, seconds; a driver who stays longer has overstayed. NULL: no limit',
    silent_for_s    Nullable(UInt32)  COMMENT 'Seconds without a fix after which a driver inside counts as silent; 0: never. NULL: events.silent_for applies, as outside the fence',
    hours           Nullable(String)  COMMENT 'Opening hours, such as Mo-Fr 06:00-18:00, Sa 08:00-12:00: crossing the border at other times is off_hours. NULL: always open',
    hours_zone      Nullable(String)  COMMENT 'Time zone of hours, such as Europe/Berlin. NULL: UTC',
    drivers         Array(String)     COMMENT 'Driver ids that the fence is for: other drivers cause no events. Empty: all drivers'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY (name, valid_from)
SETTINGS {no_tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Geofences, written by `milepost fences`. Read with FINAL'
