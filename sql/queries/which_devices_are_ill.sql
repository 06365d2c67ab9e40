-- Devices that lose fixes, restart, send late, or have a wrong clock; the worst first.
SELECT driver_id, fixes, missing, restarts, late, lag_p50_s, lag_max_s, ahead_s
FROM fleet_ask.health(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
WHERE missing > 0 OR restarts > 0 OR late > 0 OR ahead_s > 60
ORDER BY missing DESC, late DESC, ahead_s DESC
