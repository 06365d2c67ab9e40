-- For people and BI tools: one row for each driver and quarter of an hour. Sums the elements of the array column `parts` of driver_days_state:
-- each is the portion of a trip, stop or gap in that quarter, or a dropped fix.
CREATE VIEW IF NOT EXISTS {database}.driver_quarters{on_cluster}
(
    driver_id   String            COMMENT 'Driver id',
    day         Date              COMMENT 'UTC day of the quarter. Filter by it, so that ClickHouse reads only those days',
    quarter     DateTime('UTC')   COMMENT 'Start of the quarter of an hour, UTC',
    fixes       UInt64            COMMENT 'Number of fixes',
    distance_m  Float64           COMMENT 'Distance driven on trips, metres. Stops and gaps add nothing',
    moving_s    Float64           COMMENT 'Duration of trips, seconds',
    tracked_s   Float64           COMMENT 'Duration of trips and stops, seconds',
    speed_sum   Float64           COMMENT 'Sum of the speeds sent, metres per second. The mean is sum(speed_sum) / sum(speed_count)',
    speed_count UInt64            COMMENT 'Number of fixes with a speed',
    speed_max   Nullable(Float32) COMMENT 'Highest speed sent, metres per second; NULL: none',
    missing     UInt64            COMMENT 'Number of values of seq that are missing between each fix of the quarter and the fix before it. If the fix before is older than 22:00 UTC of the previous day, none of them count'
)
AS SELECT
    toString(driver_id) AS driver_id, day, toDateTime(part_quarter * 900, 'UTC') AS quarter,
    sum(part_fixes) AS fixes,
    sumIf(way, kind = 'trip') AS distance_m,
    sumIf(ended_ms - began_ms, kind = 'trip') / 1000 AS moving_s,
    sumIf(ended_ms - began_ms, kind IN ('trip', 'stop')) / 1000 AS tracked_s,
    sum(part_speed_sum) / 100 AS speed_sum, sum(part_speed_count) AS speed_count,
    if(speed_count = 0, NULL, max(speed) / 100) AS speed_max,
    sum(part_missing) AS missing
FROM {database}.driver_days_state{all} FINAL
ARRAY JOIN -- each array by its own name, so that a query reads only the arrays it needs. way: length of the part, metres
    parts.quarter AS part_quarter, parts.kind AS kind, parts.began_ms AS began_ms, parts.ended_ms AS ended_ms, parts.metres AS way, parts.fixes AS part_fixes,
    parts.missing AS part_missing, parts.speed_count AS part_speed_count, parts.speed_sum AS part_speed_sum, parts.speed_max AS speed
GROUP BY driver_id, day, quarter
COMMENT 'Totals of each driver and quarter of an hour, updated every five minutes. For the lag, query the view rollups'
