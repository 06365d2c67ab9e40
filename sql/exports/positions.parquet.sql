-- Where everybody is, as GeoParquet, for QGIS and GeoPandas.
SELECT driver_id, ts, speed, heading, CAST((lng, lat) AS Point) AS geometry
FROM fleet.last_positions
ORDER BY driver_id
FORMAT Parquet
