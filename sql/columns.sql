-- The columns of a fix, in two sections with an empty line between them: `{stored}` in a numbered file stands for the first, `{shown}` for
-- the second. This file is not a migration: a new column also needs a numbered file, which adds it to existing tables (docs/add-a-field.md).

    -- The columns of a fix in `positions` and `last_positions_state`: scaled integers, then aliases in plain units. Add new columns at the end.
    driver_id    String                              CODEC(ZSTD(1))                       COMMENT 'Driver id',
    ts           DateTime64(3, 'UTC')                CODEC(DoubleDelta, ZSTD(1))          COMMENT 'Time of the fix, UTC',
    seq          UInt32                              CODEC(DoubleDelta, ZSTD(1))          COMMENT 'Sequence number from the device, 0 if none',
    lat_e7       Int32                               CODEC(Delta(4), T64('bit'), ZSTD(1)) COMMENT 'Latitude, WGS84, 1e-7 degrees north',
    lng_e7       Int32                               CODEC(Delta(4), T64('bit'), ZSTD(1)) COMMENT 'Longitude, WGS84, 1e-7 degrees east',
    speed_cms    UInt16                              CODEC(T64, ZSTD(1))                  COMMENT 'Speed, centimetres per second; 65535: unknown',
    heading_cdeg UInt16                              CODEC(Delta(2), T64('bit'), ZSTD(1)) COMMENT 'Heading, hundredths of a degree clockwise from north; 65535: unknown',
    alt_dm       Int32                               CODEC(Delta(4), T64('bit'), ZSTD(1)) COMMENT 'Altitude, decimetres above sea level or above the WGS84 ellipsoid, whichever the source reports; 2147483647: unknown',
    acc_dm       UInt16                              CODEC(T64, ZSTD(1))                  COMMENT 'Horizontal accuracy, decimetres; 65535: unknown',
    received_at  DateTime64(3, 'UTC')                CODEC(Delta(8), T64('bit'), ZSTD(1)) COMMENT 'Time milepost received the message, UTC, by its own clock',
    inserted_at  DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1))        COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    attributes   Map(LowCardinality(String), String) CODEC(ZSTD(1))                       COMMENT 'Other payload fields, as the device sent them: those listed in the source setting `keep`, and those from which columns added by the operator are computed',
    lat          Float64           ALIAS lat_e7 / 1e7                                     COMMENT 'Latitude, WGS84 degrees north',
    lng          Float64           ALIAS lng_e7 / 1e7                                     COMMENT 'Longitude, WGS84 degrees east',
    speed        Nullable(Float32) ALIAS if(speed_cms = 65535, NULL, speed_cms / 100)     COMMENT 'Speed, metres per second; NULL: unknown',
    heading      Nullable(Float32) ALIAS if(heading_cdeg = 65535, NULL, heading_cdeg / 100) COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    alt          Nullable(Float32) ALIAS if(alt_dm = 2147483647, NULL, alt_dm / 10)       COMMENT 'Altitude, metres above sea level or above the WGS84 ellipsoid, whichever the source reports; NULL: unknown',
    acc          Nullable(Float32) ALIAS if(acc_dm = 65535, NULL, acc_dm / 10)            COMMENT 'Horizontal accuracy, metres; NULL: unknown'

    -- The columns of a fix in `fixes` and `last_positions`.
    driver_id   String                              COMMENT 'Driver id',
    ts          DateTime64(3, 'UTC')                COMMENT 'Time of the fix, UTC',
    seq         UInt32                              COMMENT 'Sequence number from the device, 0 if none',
    lat         Float64                             COMMENT 'Latitude, WGS84 degrees north',
    lng         Float64                             COMMENT 'Longitude, WGS84 degrees east',
    speed       Nullable(Float32)                   COMMENT 'Speed, metres per second; NULL: unknown',
    heading     Nullable(Float32)                   COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    alt         Nullable(Float32)                   COMMENT 'Altitude, metres above sea level or above the WGS84 ellipsoid, whichever the source reports; NULL: unknown',
    acc         Nullable(Float32)                   COMMENT 'Horizontal accuracy, metres; NULL: unknown',
    received_at DateTime64(3, 'UTC')                COMMENT 'Time milepost received the message, UTC, by its own clock',
    inserted_at DateTime64(3, 'UTC')                COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    attributes  Map(LowCardinality(String), String) COMMENT 'Other payload fields, as the device sent them: those listed in the source setting `keep`, and those from which columns added by the operator are computed'
