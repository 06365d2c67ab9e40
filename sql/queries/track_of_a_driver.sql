-- Where one driver was in the last hour, and how far that was.
SELECT
    ts, lat, lng, speed, heading,
    round(geoDistance(lagInFrame(lng, 1, lng) OVER w, lagInFrame(lat, 1, lat) OVER w, lng, lat), 1) AS metres
FROM fleet.fixes
WHERE driver_id = {driver:String} AND ts > now64(3) - INTERVAL 1 HOUR
WINDOW w AS (ORDER BY ts, seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
ORDER BY ts, seq
