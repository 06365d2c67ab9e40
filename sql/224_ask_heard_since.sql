-- The last positions whose ts is `since` or later.
CREATE VIEW IF NOT EXISTS {database}_ask.heard_since{on_cluster} AS
SELECT * REPLACE (toTimeZone(ts, {tz:String}) AS ts, toTimeZone(received_at, {tz:String}) AS received_at,
    toTimeZone(inserted_at, {tz:String}) AS inserted_at)
FROM
(
    SELECT {shown_names}
    FROM {database}.last_positions_state{all} FINAL
    WHERE ts >= parseDateTime64BestEffort({since:String}, 3, {tz:String})
)
COMMENT 'heard_since(since, tz)'
