-- Heat map of fixes, as a picture of 1024 × 1024 pixels with north up: black without a fix, then from dark red to white on a logarithmic scale.
-- Parameters: driver ('' for all), south, west, north, east, from, to, tz. If west is above east, the box crosses 180 degrees. A degree of longitude is as long as a degree of latitude only at
-- the equator. Elsewhere, choose a box that is wider in degrees than it is high.
SELECT x, y, shade AS r, greatest(0, shade * 2 - 255) AS g, greatest(0, shade * 4 - 765) AS b
FROM
(
    SELECT
        toUInt16(least(1023, (lng - {west:Float64} + 360 * (lng < {west:Float64})) / ({east:Float64} - {west:Float64} + 360 * ({east:Float64} < {west:Float64})) * 1024)) AS x,
        toUInt16(least(1023, ({north:Float64} - lat) / ({north:Float64} - {south:Float64}) * 1024)) AS y,
        round(80 + 175 * log(count()) / greatest(1, max(log(count())) OVER ())) AS shade
    FROM fleet.fixes
    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
        AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
        AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
        AND lat BETWEEN {south:Float64} AND {north:Float64}
        AND if({west:Float64} <= {east:Float64}, lng BETWEEN {west:Float64} AND {east:Float64}, lng >= {west:Float64} OR lng <= {east:Float64})
    GROUP BY x, y
)
FORMAT PNG
