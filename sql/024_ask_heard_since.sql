-- The last positions that are newer than a moment. Rows that are older are left out first, which needs no merge: a newer one
-- of the same driver passes, and wins.
CREATE OR REPLACE VIEW {database}_ask.heard_since AS
SELECT
    driver_id, toTimeZone(tupleElement(newest, 'ts'), {tz:String}) AS ts,
    tupleElement(newest, 'lat_e7') / 1e7 AS lat, tupleElement(newest, 'lng_e7') / 1e7 AS lng,
    CAST(if(tupleElement(newest, 'speed_cms') = 65535, NULL, tupleElement(newest, 'speed_cms') / 100) AS Nullable(Float32)) AS speed,
    CAST(if(tupleElement(newest, 'heading_cdeg') = 65535, NULL, tupleElement(newest, 'heading_cdeg') / 100) AS Nullable(Float32)) AS heading,
    CAST(if(tupleElement(newest, 'alt_dm') = 2147483647, NULL, tupleElement(newest, 'alt_dm') / 10) AS Nullable(Float32)) AS alt,
    CAST(if(tupleElement(newest, 'acc_dm') = 65535, NULL, tupleElement(newest, 'acc_dm') / 10) AS Nullable(Float32)) AS acc,
    toTimeZone(tupleElement(newest, 'received_at'), {tz:String}) AS received_at
FROM
(
    SELECT driver_id, max(last) AS newest
    FROM {database}.last_positions_state
    WHERE tupleElement(last, 'ts') >= parseDateTime64BestEffort({since:String}, 3, {tz:String})
    GROUP BY driver_id
)
COMMENT 'heard_since(since, tz)'
