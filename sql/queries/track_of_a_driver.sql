-- Where a driver was, fix by fix, and how far and how long that was from the fix before.
SELECT ts, lat, lng, speed, heading, round(metres, 1) AS metres, seconds
FROM fleet_ask.track(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
ORDER BY ts, seq
