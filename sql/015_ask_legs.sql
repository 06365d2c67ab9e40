-- The base of `episodes` and `days`. A leg is the way from one fix of a driver to its next one. What it is, is decided by the fixes
-- around it alone, so that the window asked for does not change it:
--   gap    more than 3,600 s: nobody knows what was between
--   stop   it is part of 180 s or more in which all fixes are in a box (along the earth's axes) with a diagonal of 200 m
--   trip   every other
-- metres is the length of the way on the WGS84 ellipsoid: of the chord, bent. A stop is one point, its middle: noise adds nothing, and
-- the way from there to the fix where the trip begins, and from its last fix to the next middle, belongs to the trip.
CREATE OR REPLACE VIEW {database}_ask.legs AS
WITH
    3600000 AS gap_ms,
    180000 AS still_ms, -- also in the two RANGE frames below, which take a literal: 179,999, because they include their ends
    200 AS still_m,
    6378137 AS equator_m,
    0.0066943799901413165 AS e2, -- of WGS84
    2 * 6371008.8 AS earth_m -- its mean diameter
SELECT
    driver_id, episode, kind, began_ms, ended_ms, from_lat, from_lng, lat, lng, speed,
    kind != before_kind OR kind = 'gap' AS is_first,
    middle_x, middle_y, middle_z,
    earth_m * asin(least(1, sqrt(pow(x - from_x, 2) + pow(y - from_y, 2) + pow(z - from_z, 2)) / earth_m)) AS own_metres,
    earth_m * asin(least(1, sqrt(pow(from_x - before_x, 2) + pow(from_y - before_y, 2) + pow(from_z - before_z, 2)) / earth_m)) AS metres_from_stop,
    earth_m * asin(least(1, sqrt(pow(x - after_x, 2) + pow(y - after_y, 2) + pow(z - after_z, 2)) / earth_m)) AS metres_to_stop,
    multiIf(
        kind != 'trip', 0,
        own_metres + if(before_kind = 'stop', metres_from_stop, 0) + if(after_kind = 'stop', metres_to_stop, 0)) AS metres,
    if(kind = 'gap', own_metres, 0) AS untracked_m
FROM
(
    SELECT
        *,
        lagInFrame(middle_x) OVER around AS before_x, lagInFrame(middle_y) OVER around AS before_y, lagInFrame(middle_z) OVER around AS before_z,
        leadInFrame(middle_x) OVER around AS after_x, leadInFrame(middle_y) OVER around AS after_y, leadInFrame(middle_z) OVER around AS after_z,
        leadInFrame(kind, 1, 'end') OVER around AS after_kind
    FROM
    (
        SELECT
            *,
            avg(x) OVER together AS middle_x, avg(y) OVER together AS middle_y, avg(z) OVER together AS middle_z
        FROM
        (
            SELECT
                *,
                sum(kind != before_kind OR kind = 'gap') OVER (PARTITION BY driver_id ORDER BY place ROWS UNBOUNDED PRECEDING) AS episode
            FROM
            (
                SELECT
                    *,
                    lagInFrame(kind, 1, 'none') OVER (PARTITION BY driver_id ORDER BY place ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before_kind
                FROM
                (
                    SELECT
                        *,
                        multiIf(
                            place = 1, 'start',
                            NOT is_joined, 'gap',
                            max(is_still) OVER (PARTITION BY driver_id ORDER BY ended_ms RANGE BETWEEN CURRENT ROW AND 179999 FOLLOWING), 'stop',
                            'trip') AS kind
                    FROM
                    (
                        SELECT
                            *,
                            min(joined_ms) OVER lately <= ended_ms - still_ms
                                AND pow(max(greatest(x, joined_x)) OVER lately - min(least(x, joined_x)) OVER lately, 2)
                                  + pow(max(greatest(y, joined_y)) OVER lately - min(least(y, joined_y)) OVER lately, 2)
                                  + pow(max(greatest(z, joined_z)) OVER lately - min(least(z, joined_z)) OVER lately, 2) <= still_m * still_m AS is_still
                        FROM
                        (
                            SELECT
                                *,
                                place > 1 AND ended_ms - began_ms <= gap_ms AS is_joined,
                                if(is_joined, began_ms, ended_ms) AS joined_ms,
                                if(is_joined, from_x, x) AS joined_x, if(is_joined, from_y, y) AS joined_y, if(is_joined, from_z, z) AS joined_z
                            FROM
                            (
                                SELECT
                                    driver_id, ended_ms, lat, lng, speed, x, y, z,
                                    row_number() OVER one_by_one AS place,
                                    lagInFrame(ended_ms, 1, ended_ms) OVER one_by_one AS began_ms,
                                    lagInFrame(lat, 1, lat) OVER one_by_one AS from_lat, lagInFrame(lng, 1, lng) OVER one_by_one AS from_lng,
                                    lagInFrame(x, 1, x) OVER one_by_one AS from_x, lagInFrame(y, 1, y) OVER one_by_one AS from_y, lagInFrame(z, 1, z) OVER one_by_one AS from_z
                                FROM
                                (
                                    SELECT
                                        driver_id, toUnixTimestamp64Milli(ts) AS ended_ms, seq, lat, lng, speed,
                                        equator_m / sqrt(1 - e2 * pow(sin(radians(lat)), 2)) AS curve_m,
                                        curve_m * cos(radians(lat)) * cos(radians(lng)) AS x,
                                        curve_m * cos(radians(lat)) * sin(radians(lng)) AS y,
                                        curve_m * (1 - e2) * sin(radians(lat)) AS z
                                    FROM {database}.fixes
                                    WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
                                        AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String}) - INTERVAL 12 HOUR
                                        AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String}) + INTERVAL 12 HOUR
                                )
                                WINDOW one_by_one AS (PARTITION BY driver_id ORDER BY ended_ms, seq, lat, lng ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
                            )
                        )
                        WINDOW lately AS (PARTITION BY driver_id ORDER BY ended_ms RANGE BETWEEN 179999 PRECEDING AND CURRENT ROW)
                    )
                )
            )
        )
        WINDOW together AS (PARTITION BY driver_id, episode)
    )
    WINDOW around AS (PARTITION BY driver_id ORDER BY place ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
)
COMMENT 'legs(driver, from, to, tz): from each fix to the next, what it was. 12 hours more at both ends. The base of episodes and days'
