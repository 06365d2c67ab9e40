-- The columns of a fix, in two sections with an empty line between them: `{stored}` in a numbered file stands for the first, `{shown}` for
-- the second. This is no migration: a new column also needs a numbered file, for tables that exist (docs/add-a-field.md).

    -- The columns of a fix in `positions` and `last_positions_state`: scaled integers, then the aliases that people read. New ones at the end.
    driver_id    String                              CODEC(ZSTD(1))                       COMMENT 'Who: the topic level matched by +',
    ts           DateTime64(3, 'UTC')                CODEC(DoubleDelta, ZSTD(1))          COMMENT 'Time of the fix',
    seq          UInt32                              CODEC(DoubleDelta, ZSTD(1))          COMMENT 'The device''s own counter, 0 if it has none',
    lat_e7       Int32                               CODEC(Delta(4), T64('bit'), ZSTD(1)) COMMENT 'WGS84 degrees north times 1e7',
    lng_e7       Int32                               CODEC(Delta(4), T64('bit'), ZSTD(1)) COMMENT 'WGS84 degrees east times 1e7',
    speed_cms    UInt16                              CODEC(T64, ZSTD(1))                  COMMENT 'Centimetres per second, 65535 unknown',
    heading_cdeg UInt16                              CODEC(Delta(2), T64('bit'), ZSTD(1)) COMMENT 'Hundredths of a degree clockwise from north, 65535 unknown',
    alt_dm       Int32                               CODEC(Delta(4), T64('bit'), ZSTD(1)) COMMENT 'Decimetres above the ellipsoid, 2147483647 unknown',
    acc_dm       UInt16                              CODEC(T64, ZSTD(1))                  COMMENT 'Horizontal accuracy in decimetres, 65535 unknown',
    received_at  DateTime64(3, 'UTC')                CODEC(Delta(8), T64('bit'), ZSTD(1)) COMMENT 'When milepost took the message from the broker',
    inserted_at  DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1))        COMMENT 'When ClickHouse took the row',
    attributes   Map(LowCardinality(String), String) CODEC(ZSTD(1))                       COMMENT 'Other fields that the source keeps (`keep`), as the device sent them',
    lat          Float64           ALIAS lat_e7 / 1e7                                     COMMENT 'Degrees north',
    lng          Float64           ALIAS lng_e7 / 1e7                                     COMMENT 'Degrees east',
    speed        Nullable(Float32) ALIAS if(speed_cms = 65535, NULL, speed_cms / 100)     COMMENT 'Metres per second',
    heading      Nullable(Float32) ALIAS if(heading_cdeg = 65535, NULL, heading_cdeg / 100) COMMENT 'Degrees clockwise from north',
    alt          Nullable(Float32) ALIAS if(alt_dm = 2147483647, NULL, alt_dm / 10)       COMMENT 'Metres',
    acc          Nullable(Float32) ALIAS if(acc_dm = 65535, NULL, acc_dm / 10)            COMMENT 'Metres'

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
