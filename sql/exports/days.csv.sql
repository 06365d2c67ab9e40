-- Kilometres of each driver and day, as CSV with a head, for spreadsheets.
SELECT driver_id, day, round(metres / 1000, 3) AS km, round(moving_s / 3600, 3) AS moving_h, round(standing_s / 3600, 3) AS standing_h, trips, stops
FROM fleet_ask.days(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
ORDER BY driver_id, day
FORMAT CSVWithNames
