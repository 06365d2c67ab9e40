-- Who was heard of in the last week, but not in the last hour; the longest silence first.
SELECT driver_id, ts, lat, lng, dateDiff('second', ts, now64(3)) AS seconds
FROM fleet.last_positions
WHERE ts > now64(3) - INTERVAL 7 DAY AND ts < now64(3) - INTERVAL 1 HOUR
ORDER BY ts
