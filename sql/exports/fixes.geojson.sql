-- A point for each fix of drivers, as GeoJSON. Its properties are the columns of `fixes`, with the fields of the operator (docs/fields.md).
SELECT [lng, lat] AS place, formatRowNoNewline('JSONEachRow', * EXCEPT (lat, lng, received_at, inserted_at, attributes)) AS properties
FROM
(
    SELECT *
    FROM fleet.fixes
    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
        AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
        AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
    ORDER BY driver_id, ts, seq
)
SETTINGS
    date_time_output_format = 'iso',
    format_template_resultset_format = '{"type":"FeatureCollection","features":[
${data}
]}
',
    format_template_row_format = '{"type":"Feature","geometry":{"type":"Point","coordinates":${place:JSON}},"properties":${properties:Raw}}',
    format_template_rows_between_delimiter = ',
'
FORMAT Template
