-- The busiest cells of a box: about 1.2 by 0.6 kilometres each with six letters.
SELECT cell, cell_lat, cell_lng, drivers, fixes
FROM fleet_ask.heatmap(
    south = {south:Float64}, west = {west:Float64}, north = {north:Float64}, east = {east:Float64}, letters = {letters:UInt8},
    from = {from:String}, to = {to:String}, tz = {tz:String})
ORDER BY drivers DESC, fixes DESC, cell
LIMIT 1000
