-- When a driver was silent for longer than so many seconds, and how far it had gone meanwhile as the crow flies.
CREATE OR REPLACE VIEW {database}_ask.gaps AS
SELECT
    driver_id, toTimeZone(ts, {tz:String}) - toIntervalMillisecond(toInt64(seconds * 1000)) AS began, toTimeZone(ts, {tz:String}) AS ended, seconds, metres,
    from_lat, from_lng, lat AS to_lat, lng AS to_lng
FROM
(
    SELECT
        *,
        lagInFrame(lat, 1, lat) OVER one_by_one AS from_lat, lagInFrame(lng, 1, lng) OVER one_by_one AS from_lng
    FROM {database}_ask.track(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String})
    WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY ts, seq, lat, lng ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
WHERE seconds > {seconds:Float64}
COMMENT 'gaps(driver, seconds, from, to, tz)'
