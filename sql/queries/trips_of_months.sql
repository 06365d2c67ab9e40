-- Each driver's trips of a long time, added up: from the table `trips`, so of months in milliseconds. from and to are days in the zone tz.
SELECT
    driver_id, count() AS trips, round(sum(metres) / 1000, 1) AS km, round(max(metres) / 1000, 1) AS longest_km,
    round(sum(seconds) / 3600, 2) AS hours, round(max(speed_max) * 3.6) AS top_kmh
FROM fleet.trips
WHERE began >= parseDateTime64BestEffort({from:String}, 3, {tz:String}) AND began < parseDateTime64BestEffort({to:String}, 3, {tz:String})
    AND ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
GROUP BY driver_id
ORDER BY km DESC
