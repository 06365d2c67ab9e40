-- Silences of more than ten minutes, and how far the driver went meanwhile as the crow flies.
SELECT driver_id, began, ended, round(seconds / 60) AS minutes, round(metres / 1000, 2) AS km, from_lat, from_lng, to_lat, to_lng
FROM fleet_ask.gaps(driver = {driver:String}, seconds = 600, from = {from:String}, to = {to:String}, tz = {tz:String})
ORDER BY seconds DESC
