-- A line per driver, as GeoParquet, for QGIS, GeoPandas and DuckDB. A line needs two fixes. Dropped fixes (docs/trips.md) are left out.
SELECT
    driver_id, min(at) AS began, max(at) AS ended, sum(leg_m) AS metres,
    CAST(arrayMap(fix -> (fix.4, fix.3), arraySort(groupArray((at, fix_seq, place_lat, place_lng)))), 'LineString') AS geometry
FROM
(
    SELECT driver_id, ts AS at, seq AS fix_seq, lat AS place_lat, lng AS place_lng, metres AS leg_m
    FROM fleet_ask.track(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
    WHERE dropped = ''
)
GROUP BY driver_id
HAVING length(geometry) > 1
ORDER BY driver_id
SETTINGS output_format_parquet_string_as_string = 0
FORMAT Parquet
