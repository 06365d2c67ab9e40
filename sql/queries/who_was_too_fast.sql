-- Who was faster than so many km/h, for how long, and where the worst of it was.
SELECT driver_id, began, seconds, round(speed_max * 3.6) AS kmh, lat, lng
FROM fleet_ask.speeding(driver = {driver:String}, speed = {kmh:Float64} / 3.6, from = {from:String}, to = {to:String}, tz = {tz:String})
ORDER BY kmh DESC
