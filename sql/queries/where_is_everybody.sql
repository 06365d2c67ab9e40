-- The last known position of every driver heard of in the last ten minutes.
SELECT driver_id, ts, lat, lng, speed, heading
FROM fleet.last_positions
WHERE ts > now64(3) - INTERVAL 10 MINUTE
ORDER BY driver_id
