-- Who stood still for more than ten minutes, where, and from when to when; also with a device that slept meanwhile.
SELECT driver_id, kind, began, ended, round(seconds / 60) AS minutes, round(lat, 5) AS lat, round(lng, 5) AS lng
FROM fleet_ask.episodes(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
WHERE (kind = 'stop' OR kind = 'gap' AND untracked_m < 200) AND seconds > 600
ORDER BY driver_id, began
