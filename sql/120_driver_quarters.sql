-- What people and BI tools read: each quarter of an hour once.
CREATE VIEW IF NOT EXISTS {database}.driver_quarters{on_cluster}
(
    driver_id   String            COMMENT 'Who',
    day         Date              COMMENT 'UTC day of the quarter. A condition on it says what is read',
    quarter     DateTime('UTC')   COMMENT 'When the quarter of an hour begins',
    fixes       UInt64            COMMENT 'Fixes in it',
    distance_m  Float64           COMMENT 'Metres driven. Standing adds none',
    moving_s    Float64           COMMENT 'Seconds of trips',
    tracked_s   Float64           COMMENT 'Seconds of trips and stops',
    speed_sum   Float64           COMMENT 'Sum of the speeds sent, in metres per second. The mean is sum(speed_sum) / sum(speed_count)',
    speed_count UInt64            COMMENT 'How many fixes sent one',
    speed_max   Nullable(Float32) COMMENT 'The highest speed sent, in metres per second, NULL if none',
    missing     UInt64            COMMENT 'Sequence numbers that did not arrive'
)
AS SELECT
    toString(driver_id) AS driver_id, day, toDateTime(part.quarter * 900, 'UTC') AS quarter,
    sum(part.fixes) AS fixes,
    sumIf(part.metres, part.kind = 'trip') AS distance_m,
    sumIf(part.ended_ms - part.began_ms, part.kind = 'trip') / 1000 AS moving_s,
    sumIf(part.ended_ms - part.began_ms, part.kind IN ('trip', 'stop')) / 1000 AS tracked_s,
    sum(part.speed_sum) / 100 AS speed_sum, sum(part.speed_count) AS speed_count,
    if(speed_count = 0, NULL, max(part.speed_max) / 100) AS speed_max,
    sum(part.missing) AS missing
FROM {database}.driver_days_state{all} FINAL
ARRAY JOIN parts AS part
GROUP BY driver_id, day, quarter
COMMENT 'What each driver did in each quarter of an hour. Computed every five minutes; rollups says how far'
