-- Where everybody is, as GeoJSON: a point for each driver.
SELECT driver_id, lat, lng, speed, heading, formatDateTime(ts, '%FT%TZ') AS time
FROM fleet.last_positions
ORDER BY driver_id
SETTINGS
    format_template_resultset_format = '{"type":"FeatureCollection","features":[
${data}
]}
',
    format_template_row_format = '{"type":"Feature","geometry":{"type":"Point","coordinates":[${lng:Raw},${lat:Raw}]},"properties":{"driver_id":${driver_id:JSON},"ts":${time:JSON},"speed":${speed:JSON},"heading":${heading:JSON}}}',
    format_template_rows_between_delimiter = ',
'
FORMAT Template
