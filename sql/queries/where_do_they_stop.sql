-- Where drivers stop for more than so many minutes: places of about a hundred metres, the most visited first. From the table `stops`.
SELECT
    round(lat, 3) AS place_lat, round(lng, 3) AS place_lng, count() AS stops, uniqExact(driver_id) AS drivers,
    round(sum(seconds) / 3600, 2) AS hours
FROM fleet.stops
WHERE began >= parseDateTime64BestEffort({from:String}, 3, {tz:String}) AND began < parseDateTime64BestEffort({to:String}, 3, {tz:String})
    AND seconds > 60 * {minutes:Float64}
GROUP BY place_lat, place_lng
ORDER BY stops DESC, hours DESC
LIMIT 100
