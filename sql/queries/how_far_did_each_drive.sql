-- Kilometres and hours of each driver in a day, a month, any time: from and to are days in the zone tz; driver may be ''.
SELECT
    driver_id, round(sum(metres) / 1000, 1) AS km, round(sum(untracked_m) / 1000, 1) AS untracked_km,
    round(sum(moving_s) / 3600, 2) AS moving_h, round(sum(standing_s) / 3600, 2) AS standing_h, sum(trips) AS trips
FROM fleet_ask.days(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
GROUP BY driver_id
ORDER BY km DESC
