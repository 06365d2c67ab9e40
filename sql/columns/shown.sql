    -- The columns of a fix in `fixes` and `last_positions`.
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
    attributes  Map(LowCardinality(String), String) COMMENT 'Other fields that the source keeps (`keep`), as the device sent them'
