-- Every fix of drivers, as GeoParquet, for QGIS, GeoPandas and DuckDB, for example those of one driver in one month.
SELECT driver_id, ts, seq, speed, heading, alt, acc, seconds, metres, dropped, CAST((lng, lat), 'Point') AS geometry
FROM fleet_ask.track(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
ORDER BY driver_id, ts, seq
SETTINGS output_format_parquet_string_as_string = 0
FORMAT Parquet
