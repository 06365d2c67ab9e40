-- Geofences: areas with names, for fleet_ask.fence_visits. Polygons as in GeoJSON (RFC 7946): each a list of rings, the outline first, then holes,
-- an area across the antimeridian is two polygons. A row with the same name and valid_from takes the place of the one before.
CREATE TABLE IF NOT EXISTS {database}.fences{on_cluster}
(
    name        String               COMMENT 'Of the area',
    valid_from  DateTime64(3, 'UTC') DEFAULT toDateTime64(0, 3, 'UTC') COMMENT 'Fixes before do not count',
    valid_until DateTime64(3, 'UTC') DEFAULT toDateTime64('2200-01-01', 3, 'UTC') COMMENT 'The first moment that does not count any more',
    polygons    Array(Array(Array(Tuple(lng Float64, lat Float64)))) COMMENT 'Polygons of rings of points, WGS84 degrees',
    written_at  DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When this row was written: the newest counts'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY (name, valid_from)
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Areas with names, which milepost fences writes. Read them with FINAL'
