-- The cells (H3, about a kilometre wide) that most drivers came through. From the table `cell_quarters`; h3 is how maps write it.
SELECT
    h3ToString(cell) AS h3, round(any(cell_lat), 4) AS lat, round(any(cell_lng), 4) AS lng,
    uniqExact(driver_id) AS drivers, uniqExact(driver_id, quarter) AS driver_quarters, sum(fixes) AS fixes
FROM fleet.cell_quarters
WHERE quarter >= parseDateTimeBestEffort({from:String}, {tz:String}) AND quarter < parseDateTimeBestEffort({to:String}, {tz:String})
GROUP BY cell
ORDER BY drivers DESC, driver_quarters DESC, fixes DESC, cell
LIMIT 100
