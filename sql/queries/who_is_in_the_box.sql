-- Who is in a box of latitudes and longitudes now.
SELECT driver_id, ts, lat, lng
FROM fleet_ask.in_box(south = {south:Float64}, west = {west:Float64}, north = {north:Float64}, east = {east:Float64})
ORDER BY driver_id
