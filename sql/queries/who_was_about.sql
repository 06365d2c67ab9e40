-- Who was within so many metres of a point, when, and how near: as who_was_near.sql, but by the cells, which is quick in a large fleet and
-- a long time. What came since the last count (fleet.rollups) is not in it.
SELECT driver_id, first, last, fixes, round(nearest_m, 1) AS nearest_m, nearest
FROM fleet_ask.was_near(lat = {lat:Float64}, lng = {lng:Float64}, metres = {metres:Float64}, driver = '', from = {from:String}, to = {to:String}, tz = {tz:String})
ORDER BY nearest_m
