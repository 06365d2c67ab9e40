-- The number of fixes and of drivers in each cell of a box. Cells are geohashes of 1 to 12 letters (5: 4.9 × 4.9 km at the equator, 6: 1.2 × 0.6
-- km, 7: 153 × 153 m, 8: 38 × 19 m). If west is above east, the box crosses 180 degrees. A longitude of 180 is also -180.
CREATE VIEW IF NOT EXISTS {database}_ask.heatmap{on_cluster} AS
WITH geohashEncode(lng, lat, {letters:UInt8}) AS hash
SELECT
    hash AS cell,
    geohashDecode(hash).2 AS cell_lat, geohashDecode(hash).1 AS cell_lng, -- centre of the cell
    count() AS fixes, uniqExact(driver_id) AS drivers
FROM {database}.fixes
WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
    AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
    AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
    AND lat BETWEEN {south:Float64} AND {north:Float64}
    AND if({west:Float64} <= {east:Float64},
        lng BETWEEN {west:Float64} AND {east:Float64} OR abs(lng) = 180 AND ({west:Float64} = -180 OR {east:Float64} = 180),
        lng >= {west:Float64} OR lng <= {east:Float64})
GROUP BY cell
COMMENT 'heatmap(driver, south, west, north, east, letters, from, to, tz)'
