-- A line for each driver, as GeoJSON. A line across 180 degrees is not split, so a map program may draw it around the world.
SELECT driver_id, groupArray([lng, lat]) AS line, toString(min(ts)) AS began, toString(max(ts)) AS ended
FROM
(
    SELECT driver_id, ts, lng, lat
    FROM fleet_ask.track(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
    WHERE dropped = ''
    ORDER BY driver_id, ts, seq
)
GROUP BY driver_id
HAVING length(line) > 1
ORDER BY driver_id
SETTINGS
    format_template_resultset_format = '{"type":"FeatureCollection","features":[
${data}
]}
',
    format_template_row_format = '{"type":"Feature","geometry":{"type":"LineString","coordinates":${line:JSON}},"properties":{"driver_id":${driver_id:JSON},"began":${began:JSON},"ended":${ended:JSON}}}',
    format_template_rows_between_delimiter = ',
'
FORMAT Template
