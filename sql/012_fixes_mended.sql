-- The same view: conditions on who, when and where are tested before the other columns are read, and each column says
-- what it is. Only columns of the sorting key are tested so early: of two rows for one fix, the older cannot come back.
CREATE OR REPLACE VIEW {database}.fixes
(
    driver_id   String                              COMMENT 'Who',
    ts          DateTime64(3, 'UTC')                COMMENT 'Time of the fix',
    seq         UInt32                              COMMENT 'The device''s own counter, 0 if it has none',
    lat         Float64                             COMMENT 'WGS84 degrees north',
    lng         Float64                             COMMENT 'WGS84 degrees east',
    speed       Nullable(Float32)                   COMMENT 'Metres per second, NULL if unknown',
    heading     Nullable(Float32)                   COMMENT 'Degrees clockwise from north, NULL if unknown',
    alt         Nullable(Float32)                   COMMENT 'Metres above the ellipsoid, NULL if unknown',
    acc         Nullable(Float32)                   COMMENT 'Horizontal accuracy in metres, NULL if unknown',
    received_at DateTime64(3, 'UTC')                COMMENT 'When milepost took the message from the broker',
    inserted_at DateTime64(3, 'UTC')                COMMENT 'When ClickHouse took the row',
    attributes  Map(LowCardinality(String), String) COMMENT 'What the source keeps of other fields'
)
AS SELECT driver_id, ts, seq, lat, lng, speed, heading, alt, acc, received_at, inserted_at, attributes
FROM {database}.positions FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1
COMMENT 'Every fix once, in plain units. Give a range of ts: it says which months are read'
