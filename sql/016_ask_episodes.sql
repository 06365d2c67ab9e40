-- Trips, stops and gaps, one after the other without holes. Whole ones, also where the window cuts them, as far as 12 hours outside.
CREATE OR REPLACE VIEW {database}_ask.episodes AS
WITH
    3600000 AS gap_ms,
    0.0066943799901413165 AS e2,
    parseDateTime64BestEffort({from:String}, 3, {tz:String}) AS since,
    parseDateTime64BestEffort({to:String}, 3, {tz:String}) AS until
SELECT
    driver_id,
    any(legs.kind) AS kind,
    fromUnixTimestamp64Milli(min(began_ms), {tz:String}) AS began,
    fromUnixTimestamp64Milli(max(ended_ms), {tz:String}) AS ended,
    (max(ended_ms) - min(began_ms)) / 1000 AS seconds,
    sum(legs.metres) AS metres,
    sum(legs.untracked_m) AS untracked_m,
    count() AS fixes,
    if(kind = 'stop', degrees(atan2(any(middle_z), (1 - e2) * sqrt(pow(any(middle_x), 2) + pow(any(middle_y), 2)))), argMin(from_lat, began_ms)) AS lat,
    if(kind = 'stop', degrees(atan2(any(middle_y), any(middle_x))), argMin(from_lng, began_ms)) AS lng,
    if(kind = 'stop', lat, argMax(legs.lat, ended_ms)) AS to_lat,
    if(kind = 'stop', lng, argMax(legs.lng, ended_ms)) AS to_lng,
    max(legs.speed) AS speed_max
FROM {database}_ask.legs(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = {tz:String}) AS legs
GROUP BY driver_id, episode
HAVING kind != 'start' AND ended > since AND began < until
COMMENT 'episodes(driver, from, to, tz)'
