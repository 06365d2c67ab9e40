-- Each trip: from where to where, how far, how fast.
SELECT
    driver_id, began, ended, round(metres / 1000, 2) AS km, round(metres / seconds * 3.6) AS kmh,
    round(lat, 4) AS lat, round(lng, 4) AS lng, round(to_lat, 4) AS to_lat, round(to_lng, 4) AS to_lng
FROM fleet_ask.episodes(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
WHERE kind = 'trip'
ORDER BY driver_id, began
