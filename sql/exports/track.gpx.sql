-- One driver's track as GPX, for navigation devices and map programs. Times have milliseconds, so that `milepost import` recognises fixes that
-- are already stored.
SELECT
    lat, lng, toUnixTimestamp64Milli(ts) % 1000 AS ms,
    formatDateTime(toTimeZone(ts, 'UTC'), '%FT%T') || if(ms = 0, '', '.' || leftPad(toString(ms), 3, '0')) || 'Z' AS time
FROM fleet_ask.track(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
WHERE dropped = ''
ORDER BY ts, seq
SETTINGS
    format_template_resultset_format = '<?xml version="1.0" encoding="UTF-8"?>
<gpx version="1.1" creator="milepost" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>
${data}
</trkseg></trk></gpx>
',
    format_template_row_format = '<trkpt lat="${lat:Raw}" lon="${lng:Raw}"><time>${time:Raw}</time></trkpt>'
FORMAT Template
