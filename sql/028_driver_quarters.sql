-- What people and BI tools read: each quarter once.
CREATE VIEW IF NOT EXISTS {database}.driver_quarters
(
    driver_id   String            COMMENT 'Who',
    quarter     DateTime('UTC')   COMMENT 'When the quarter of an hour begins',
    fixes       UInt32            COMMENT 'Fixes in it',
    distance_m  Float32           COMMENT 'Metres driven. Standing adds none',
    untracked_m Float32           COMMENT 'Straight lines of the gaps (1 to 3 hours without a fix) that end in it, in metres',
    moving_s    Float32           COMMENT 'Seconds of trips',
    tracked_s   Float32           COMMENT 'Seconds of trips and stops',
    speed_sum   Float64           COMMENT 'Sum of the speeds sent, in metres per second. The mean is sum(speed_sum) / sum(speed_count)',
    speed_count UInt32            COMMENT 'How many fixes sent one',
    speed_max   Nullable(Float32) COMMENT 'The highest speed sent, in metres per second, NULL if none',
    missing     UInt32            COMMENT 'Numbers between two neighbours'' seq: fixes that never came',
    computed_at DateTime64(3, 'UTC') COMMENT 'When this row was counted'
)
AS SELECT driver_id, quarter, fixes, distance_m, untracked_m, moving_s, tracked_s, speed_sum, speed_count, speed_max, missing, computed_at
FROM {database}.driver_quarters_state FINAL
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'What each driver did in each quarter of an hour. Counted every hour, and rollups says how far'
