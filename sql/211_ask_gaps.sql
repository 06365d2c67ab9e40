-- Silences longer than the given number of seconds. A silence that overlaps the window is returned whole, up to 12 hours beyond the window. If a
-- driver sent nothing in the 12 hours after the window, `ended` is NULL, and `seconds` counts to the end of the window, or to now if that is
-- earlier.
--
-- Time is divided into slots of the given number of seconds. A silence is longer than a slot, so it begins with the last fix of one slot and
-- ends with the first fix of a later slot. To compare fixes, each is one number: ts in milliseconds, then 32 bits each of seq, lat_e7 and
-- lng_e7. lat_e7 and lng_e7 are shifted by `half` to begin at 0. A fix that is stored twice changes neither the first nor the last fix of its
-- slot, so FINAL is not needed.
CREATE VIEW IF NOT EXISTS {database}_ask.gaps{on_cluster} AS
WITH
    6378137 AS equator_m,
    0.9966471893352525 AS flat, -- polar radius of WGS84, divided by the equatorial radius
    2 * 6371008.8 AS earth_m, -- mean diameter of the earth
    2147483648 AS half, -- half of the range of 32 bits
    parseDateTime64BestEffort({from:String}, 3, {tz:String}) AS since,
    parseDateTime64BestEffort({to:String}, 3, {tz:String}) AS until
SELECT
    driver_id, fromUnixTimestamp64Milli(ms, {tz:String}) AS began, if(has_end, fromUnixTimestamp64Milli(next_ms, {tz:String}), NULL) AS ended,
    quiet_ms / 1000 AS seconds,
    if(has_end, earth_m * asin(least(1., sqrt(pow(next_axis_m - axis_m, 2) + pow(flat * (next_slope * next_axis_m - slope * axis_m), 2)
        + axis_m * next_axis_m * pow(2 * sin(radians((next_lng - lng) / 2)), 2)) / earth_m)), NULL) AS metres,
    lat AS from_lat, lng AS from_lng, if(has_end, next_lat, NULL) AS to_lat, if(has_end, next_lng, NULL) AS to_lng
FROM
(
    SELECT
        *,
        flat * tan(radians(lat)) AS slope, equator_m / sqrt(1 + slope * slope) AS axis_m,
        flat * tan(radians(next_lat)) AS next_slope, equator_m / sqrt(1 + next_slope * next_slope) AS next_axis_m
    FROM
    (
        SELECT
            driver_id, next != 0 AS has_end, toInt64(bitShiftRight(last, 96)) AS ms, toInt64(bitShiftRight(next, 96)) AS next_ms,
            if(has_end, next_ms, toUnixTimestamp64Milli(least(until, now64(3)))) - ms AS quiet_ms,
            (toUInt32(bitShiftRight(last, 32)) - half) / 1e7 AS lat, (toUInt32(last) - half) / 1e7 AS lng,
            (toUInt32(bitShiftRight(next, 32)) - half) / 1e7 AS next_lat, (toUInt32(next) - half) / 1e7 AS next_lng
        FROM
        (
            SELECT
                driver_id, max(fix) AS last,
                leadInFrame(min(fix)) OVER (PARTITION BY driver_id ORDER BY slot ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS next
            FROM
            (
                SELECT
                    driver_id, toUnixTimestamp64Milli(ts) AS ms, intDiv(ms, toInt64(greatest(1, {seconds:Float64} * 1000))) AS slot,
                    bitShiftLeft(toInt256(ms), 96) + bitShiftLeft(toInt256(seq), 64) + bitShiftLeft(toUInt64(lat_e7 + half), 32) + toUInt64(lng_e7 + half) AS fix
                FROM {database}.positions{all}
                WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                    AND ts >= since - INTERVAL 12 HOUR AND ts < until + INTERVAL 12 HOUR
            )
            GROUP BY driver_id, slot
        )
    )
    WHERE quiet_ms > {seconds:Float64} * 1000 AND ms < toUnixTimestamp64Milli(until) AND (NOT has_end OR next_ms > toUnixTimestamp64Milli(since))
)
COMMENT 'gaps(driver, seconds, from, to, tz)'
