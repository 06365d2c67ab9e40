-- Silences longer than so many seconds. Whole ones, also where the window cuts them, as far as 12 hours outside. Who was not heard of
-- again by then has no end: `ended` is NULL, and seconds are those until the window ends, or until now.
CREATE OR REPLACE VIEW {database}_ask.gaps AS
WITH
    parseDateTime64BestEffort({from:String}, 3, {tz:String}) AS since,
    parseDateTime64BestEffort({to:String}, 3, {tz:String}) AS until
SELECT
    driver_id, ts AS began, next_ts AS ended,
    if(ended IS NULL, dateDiff('millisecond', began, least(until, now64(3))) / 1000, next_seconds) AS seconds,
    next_metres AS metres, lat AS from_lat, lng AS from_lng, next_lat AS to_lat, next_lng AS to_lng
FROM
(
    SELECT
        driver_id, ts, lat, lng,
        leadInFrame(toNullable(ts)) OVER one_by_one AS next_ts,
        leadInFrame(toNullable(gaps_track.seconds)) OVER one_by_one AS next_seconds, leadInFrame(toNullable(gaps_track.metres)) OVER one_by_one AS next_metres,
        leadInFrame(toNullable(lat)) OVER one_by_one AS next_lat, leadInFrame(toNullable(lng)) OVER one_by_one AS next_lng
    FROM {database}_ask.track(
        driver = {driver:String}, tz = {tz:String},
        from = toString(toUnixTimestamp64Milli(parseDateTime64BestEffort({from:String}, 3, {tz:String}) - INTERVAL 12 HOUR)),
        to = toString(toUnixTimestamp64Milli(parseDateTime64BestEffort({to:String}, 3, {tz:String}) + INTERVAL 12 HOUR))) AS gaps_track
    WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY ts, seq, lat, lng ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)
)
WHERE seconds > {seconds:Float64} AND began < until AND (ended IS NULL OR ended > since)
COMMENT 'gaps(driver, seconds, from, to, tz)'
