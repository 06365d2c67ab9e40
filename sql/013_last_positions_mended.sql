-- The same view without a GROUP BY, which had to hold all drivers in memory. tupleElement(last, …), not last.lat_e7: see 014.
CREATE OR REPLACE VIEW {database}.last_positions
(
    driver_id   String               COMMENT 'Who',
    ts          DateTime64(3, 'UTC') COMMENT 'Time of the newest fix',
    lat         Float64              COMMENT 'WGS84 degrees north',
    lng         Float64              COMMENT 'WGS84 degrees east',
    speed       Nullable(Float32)    COMMENT 'Metres per second, NULL if unknown',
    heading     Nullable(Float32)    COMMENT 'Degrees clockwise from north, NULL if unknown',
    alt         Nullable(Float32)    COMMENT 'Metres above the ellipsoid, NULL if unknown',
    acc         Nullable(Float32)    COMMENT 'Horizontal accuracy in metres, NULL if unknown',
    received_at DateTime64(3, 'UTC') COMMENT 'When milepost took the message from the broker'
)
AS SELECT
    driver_id,
    tupleElement(last, 'ts') AS ts,
    tupleElement(last, 'lat_e7') / 1e7 AS lat,
    tupleElement(last, 'lng_e7') / 1e7 AS lng,
    CAST(if(tupleElement(last, 'speed_cms') = 65535, NULL, tupleElement(last, 'speed_cms') / 100) AS Nullable(Float32)) AS speed,
    CAST(if(tupleElement(last, 'heading_cdeg') = 65535, NULL, tupleElement(last, 'heading_cdeg') / 100) AS Nullable(Float32)) AS heading,
    CAST(if(tupleElement(last, 'alt_dm') = 2147483647, NULL, tupleElement(last, 'alt_dm') / 10) AS Nullable(Float32)) AS alt,
    CAST(if(tupleElement(last, 'acc_dm') = 65535, NULL, tupleElement(last, 'acc_dm') / 10) AS Nullable(Float32)) AS acc,
    tupleElement(last, 'received_at') AS received_at
FROM {database}.last_positions_state FINAL
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'Where everybody is: one row a driver, its newest fix by ts, then by seq'
