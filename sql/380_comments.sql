-- Comments of tables and columns that 0.1.0 had in other words. Tables that were created later have them already: Keeper compares the
-- comments of columns, so these are the same as in the files that create the tables, byte for byte.
ALTER TABLE {database}.schema_migrations{on_cluster}
    MODIFY COLUMN version    COMMENT 'Number of the migration, which its file name begins with',
    MODIFY COLUMN name       COMMENT 'File name of the migration, without .sql',
    MODIFY COLUMN checksum   COMMENT 'Hash of the file as released, by which an edited file is noticed',
    MODIFY COLUMN applied_at COMMENT 'Time applied, UTC',
    MODIFY COMMENT 'Migrations that milepost migrate has applied';

ALTER TABLE {database}.positions{on_cluster}
    MODIFY COLUMN driver_id    COMMENT 'Driver id',
    MODIFY COLUMN ts           COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq          COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat_e7       COMMENT 'Latitude, WGS84, 1e-7 degrees north',
    MODIFY COLUMN lng_e7       COMMENT 'Longitude, WGS84, 1e-7 degrees east',
    MODIFY COLUMN speed_cms    COMMENT 'Speed, centimetres per second; 65535: unknown',
    MODIFY COLUMN heading_cdeg COMMENT 'Heading, hundredths of a degree clockwise from north; 65535: unknown',
    MODIFY COLUMN alt_dm       COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, decimetres; 2147483647: unknown',
    MODIFY COLUMN acc_dm       COMMENT 'Horizontal accuracy, decimetres; 65535: unknown',
    MODIFY COLUMN received_at  COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at  COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes   COMMENT 'Other fields that the source keeps (`keep`), as the device sent them',
    MODIFY COLUMN lat          COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng          COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed        COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading      COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt          COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, metres; NULL: unknown',
    MODIFY COLUMN acc          COMMENT 'Horizontal accuracy, metres; NULL: unknown',
    MODIFY COMMENT 'Every fix as it was inserted: a fix that arrived twice stays twice until a merge. Query fixes instead';

{shards}ALTER TABLE {database}.positions_all{on_cluster}
    MODIFY COLUMN driver_id    COMMENT 'Driver id',
    MODIFY COLUMN ts           COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq          COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat_e7       COMMENT 'Latitude, WGS84, 1e-7 degrees north',
    MODIFY COLUMN lng_e7       COMMENT 'Longitude, WGS84, 1e-7 degrees east',
    MODIFY COLUMN speed_cms    COMMENT 'Speed, centimetres per second; 65535: unknown',
    MODIFY COLUMN heading_cdeg COMMENT 'Heading, hundredths of a degree clockwise from north; 65535: unknown',
    MODIFY COLUMN alt_dm       COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, decimetres; 2147483647: unknown',
    MODIFY COLUMN acc_dm       COMMENT 'Horizontal accuracy, decimetres; 65535: unknown',
    MODIFY COLUMN received_at  COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at  COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes   COMMENT 'Other fields that the source keeps (`keep`), as the device sent them',
    MODIFY COLUMN lat          COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng          COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed        COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading      COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt          COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, metres; NULL: unknown',
    MODIFY COLUMN acc          COMMENT 'Horizontal accuracy, metres; NULL: unknown';

ALTER TABLE {database}.fixes{on_cluster}
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN ts          COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq         COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat         COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng         COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed       COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading     COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt         COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, metres; NULL: unknown',
    MODIFY COLUMN acc         COMMENT 'Horizontal accuracy, metres; NULL: unknown',
    MODIFY COLUMN received_at COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes  COMMENT 'Other fields that the source keeps (`keep`), as the device sent them',
    MODIFY COMMENT 'Every fix once, in plain units. Give a range of ts: it decides which days are read';

ALTER TABLE {database}.last_positions_state{on_cluster}
    MODIFY COLUMN version      COMMENT 'Order of fixes, the highest is the newest: ts, seq, lat_e7, lng_e7, received_at, and a hash of the rest',
    MODIFY COLUMN driver_id    COMMENT 'Driver id',
    MODIFY COLUMN ts           COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq          COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat_e7       COMMENT 'Latitude, WGS84, 1e-7 degrees north',
    MODIFY COLUMN lng_e7       COMMENT 'Longitude, WGS84, 1e-7 degrees east',
    MODIFY COLUMN speed_cms    COMMENT 'Speed, centimetres per second; 65535: unknown',
    MODIFY COLUMN heading_cdeg COMMENT 'Heading, hundredths of a degree clockwise from north; 65535: unknown',
    MODIFY COLUMN alt_dm       COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, decimetres; 2147483647: unknown',
    MODIFY COLUMN acc_dm       COMMENT 'Horizontal accuracy, decimetres; 65535: unknown',
    MODIFY COLUMN received_at  COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at  COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes   COMMENT 'Other fields that the source keeps (`keep`), as the device sent them',
    MODIFY COLUMN lat          COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng          COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed        COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading      COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt          COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, metres; NULL: unknown',
    MODIFY COLUMN acc          COMMENT 'Horizontal accuracy, metres; NULL: unknown',
    MODIFY COMMENT 'Newest fix of each driver, and older ones until they merge. Query last_positions instead: without FINAL, or with a condition in PREWHERE, older fixes are found';

{shards}ALTER TABLE {database}.last_positions_state_all{on_cluster}
    MODIFY COLUMN version      COMMENT 'Order of fixes, the highest is the newest: ts, seq, lat_e7, lng_e7, received_at, and a hash of the rest',
    MODIFY COLUMN driver_id    COMMENT 'Driver id',
    MODIFY COLUMN ts           COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq          COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat_e7       COMMENT 'Latitude, WGS84, 1e-7 degrees north',
    MODIFY COLUMN lng_e7       COMMENT 'Longitude, WGS84, 1e-7 degrees east',
    MODIFY COLUMN speed_cms    COMMENT 'Speed, centimetres per second; 65535: unknown',
    MODIFY COLUMN heading_cdeg COMMENT 'Heading, hundredths of a degree clockwise from north; 65535: unknown',
    MODIFY COLUMN alt_dm       COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, decimetres; 2147483647: unknown',
    MODIFY COLUMN acc_dm       COMMENT 'Horizontal accuracy, decimetres; 65535: unknown',
    MODIFY COLUMN received_at  COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at  COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes   COMMENT 'Other fields that the source keeps (`keep`), as the device sent them',
    MODIFY COLUMN lat          COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng          COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed        COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading      COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt          COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, metres; NULL: unknown',
    MODIFY COLUMN acc          COMMENT 'Horizontal accuracy, metres; NULL: unknown';

ALTER TABLE {database}.last_positions{on_cluster}
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN ts          COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq         COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat         COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng         COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed       COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading     COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt         COMMENT 'Altitude above sea level or the ellipsoid, as the source reports it, metres; NULL: unknown',
    MODIFY COLUMN acc         COMMENT 'Horizontal accuracy, metres; NULL: unknown',
    MODIFY COLUMN received_at COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes  COMMENT 'Other fields that the source keeps (`keep`), as the device sent them',
    MODIFY COMMENT 'Last position of each driver: one row per driver, its newest fix by ts, then by seq';

ALTER TABLE {database}.rejects{on_cluster}
    MODIFY COLUMN received_at   COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN topic         COMMENT 'MQTT topic, its first 1,024 bytes',
    MODIFY COLUMN driver_id     COMMENT 'Driver id; empty if the topic names no driver',
    MODIFY COLUMN reason        COMMENT 'Reason: the rule of the input contract that was broken, such as bad_ts',
    MODIFY COLUMN detail        COMMENT 'Description of the error',
    MODIFY COLUMN payload       COMMENT 'Rejected point as sent, or the whole message if no single point is at fault; at most its first 64 KiB',
    MODIFY COLUMN payload_bytes COMMENT 'Length of the payload before it was cut, in bytes',
    MODIFY COLUMN count         COMMENT 'Number of rejects that this row stands for; above 1 under the flood limit',
    MODIFY COLUMN inserted_at   COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COMMENT 'Rejected points and messages, each with its reason';

{shards}ALTER TABLE {database}.rejects_all{on_cluster}
    MODIFY COLUMN received_at   COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN topic         COMMENT 'MQTT topic, its first 1,024 bytes',
    MODIFY COLUMN driver_id     COMMENT 'Driver id; empty if the topic names no driver',
    MODIFY COLUMN reason        COMMENT 'Reason: the rule of the input contract that was broken, such as bad_ts',
    MODIFY COLUMN detail        COMMENT 'Description of the error',
    MODIFY COLUMN payload       COMMENT 'Rejected point as sent, or the whole message if no single point is at fault; at most its first 64 KiB',
    MODIFY COLUMN payload_bytes COMMENT 'Length of the payload before it was cut, in bytes',
    MODIFY COLUMN count         COMMENT 'Number of rejects that this row stands for; above 1 under the flood limit',
    MODIFY COLUMN inserted_at   COMMENT 'Time of the insert, UTC, by the clock of ClickHouse';

ALTER TABLE {database}.fences{on_cluster}
    MODIFY COLUMN name            COMMENT 'Fence name',
    MODIFY COLUMN valid_from      COMMENT 'Start of validity, UTC: earlier fixes do not count',
    MODIFY COLUMN valid_until     COMMENT 'End of validity, UTC, exclusive: later fixes do not count',
    MODIFY COLUMN polygons        COMMENT 'Polygons as in GeoJSON: lists of rings (outline, then holes) of points, WGS84 degrees',
    MODIFY COLUMN written_at      COMMENT 'Time the row was written, UTC; the newest row counts',
    MODIFY COLUMN speed_limit_kmh COMMENT 'Speed limit inside, km/h; above it a driver is fast. NULL: none',
    MODIFY COLUMN stay_max_s      COMMENT 'Longest stay inside, seconds; a driver who stays longer has overstayed. NULL: no limit',
    MODIFY COLUMN silent_for_s    COMMENT 'Seconds without a fix after which a driver inside is silent; 0: never. NULL: as outside',
    MODIFY COLUMN hours           COMMENT 'Opening hours, such as Mo-Fr 06:00-18:00, Sa 08:00-12:00: crossing the border at other times is off_hours. NULL: always open',
    MODIFY COLUMN hours_zone      COMMENT 'Time zone of hours, such as Europe/Berlin. NULL: UTC',
    MODIFY COLUMN drivers         COMMENT 'Driver ids that the fence is for: other drivers cause no events. Empty: all drivers',
    MODIFY COMMENT 'Geofences, which milepost fences writes. Read them with FINAL';

ALTER TABLE {database}.erased{on_cluster}
    MODIFY COLUMN driver_id  COMMENT 'Driver id',
    MODIFY COLUMN is_lifted  COMMENT '1: the erasure is lifted, later fixes of the driver are stored; 0: they are dropped',
    MODIFY COLUMN written_at COMMENT 'Time the row was written, UTC; the newest row counts',
    MODIFY COMMENT 'Erased drivers, which milepost erase writes. Read it with FINAL';

ALTER TABLE {database}.events{on_cluster}
    MODIFY COLUMN driver_id  COMMENT 'Driver id',
    MODIFY COLUMN ts         COMMENT 'Time of the event''s fix, UTC: the first inside or outside the fence (for overstayed and off_hours, too), the first that is fast or slow, the last before a silence, the one that jumped',
    MODIFY COLUMN seq        COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN kind       COMMENT 'Kind: entered, overstayed, left, off_hours, silent, heard, fast, slow or jump',
    MODIFY COLUMN fence      COMMENT 'Fence name for entered, overstayed, left and off_hours, and for fast and slow by the limit of a fence; else empty',
    MODIFY COLUMN lat        COMMENT 'Latitude of the fix, WGS84 degrees north',
    MODIFY COLUMN lng        COMMENT 'Longitude of the fix, WGS84 degrees east',
    MODIFY COLUMN speed      COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN known_at   COMMENT 'Time the event was known, UTC, by the clock of ClickHouse: insert of the fix; for a silence, events.silent_for later',
    MODIFY COLUMN mqtt_at    COMMENT 'Time the broker acknowledged the event, UTC; NULL: not yet',
    MODIFY COLUMN webhook_at COMMENT 'Time the webhook accepted the event, UTC; NULL: not yet',
    MODIFY COLUMN written_at COMMENT 'Time the row was written, UTC; the newest row counts',
    MODIFY COMMENT 'Events of drivers, which milepost events writes. Read them with FINAL';

ALTER TABLE {database}.touched{on_cluster}
    MODIFY COLUMN day        COMMENT 'UTC day',
    MODIFY COLUMN driver_id  COMMENT 'Driver id',
    MODIFY COLUMN rows       COMMENT 'Number of rows inserted so far, duplicates included',
    MODIFY COLUMN touched_at COMMENT 'Time of the newest insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN speed_max  COMMENT 'Highest speed sent, centimetres per second; 0 if none',
    MODIFY COLUMN seen       COMMENT 'Only in rows of the day 2049-01-01: number of the refresh, and the parts of positions that are counted',
    MODIFY COMMENT 'Number of rows inserted for each driver and UTC day. The roll-up computes a day again when its number grows';

{shards}ALTER TABLE {database}.touched_all{on_cluster}
    MODIFY COLUMN day        COMMENT 'UTC day',
    MODIFY COLUMN driver_id  COMMENT 'Driver id',
    MODIFY COLUMN rows       COMMENT 'Number of rows inserted so far, duplicates included',
    MODIFY COLUMN touched_at COMMENT 'Time of the newest insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN speed_max  COMMENT 'Highest speed sent, centimetres per second; 0 if none',
    MODIFY COLUMN seen       COMMENT 'Only in rows of the day 2049-01-01: number of the refresh, and the parts of positions that are counted';

ALTER TABLE {database}.driver_days_state{on_cluster}
    MODIFY COLUMN day         COMMENT 'UTC day',
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN parts       COMMENT 'Trips, stops, gaps and dropped fixes, cut at quarters of an hour, in order of time',
    MODIFY COLUMN dropped     COMMENT 'Dropped fixes, also among parts: a column of its own, so that queries for them read little',
    MODIFY COLUMN rows        COMMENT 'Number of rows in touched when the fixes of the day were read',
    MODIFY COLUMN computed_at COMMENT 'Time the row was computed, UTC',
    MODIFY COLUMN rules       COMMENT 'Hash of the limits in trip_rules_in_force by which the day was computed',
    MODIFY COLUMN derived_cms COMMENT 'Highest speed derived from fixes without a speed, centimetres per second; 0 if none',
    MODIFY COLUMN derived     COMMENT 'Highest derived speed of each quarter of an hour since 1970, centimetres per second; empty if none',
    MODIFY COLUMN trip_m      COMMENT 'Longest distance, metres, between the ends of a silence that counts as parking',
    MODIFY COMMENT 'Trips, stops and gaps of each driver and UTC day, computed every five minutes. Read it with FINAL';

{shards}ALTER TABLE {database}.driver_days_state_all{on_cluster}
    MODIFY COLUMN day         COMMENT 'UTC day',
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN parts       COMMENT 'Trips, stops, gaps and dropped fixes, cut at quarters of an hour, in order of time',
    MODIFY COLUMN dropped     COMMENT 'Dropped fixes, also among parts: a column of its own, so that queries for them read little',
    MODIFY COLUMN rows        COMMENT 'Number of rows in touched when the fixes of the day were read',
    MODIFY COLUMN computed_at COMMENT 'Time the row was computed, UTC',
    MODIFY COLUMN rules       COMMENT 'Hash of the limits in trip_rules_in_force by which the day was computed',
    MODIFY COLUMN derived_cms COMMENT 'Highest speed derived from fixes without a speed, centimetres per second; 0 if none',
    MODIFY COLUMN derived     COMMENT 'Highest derived speed of each quarter of an hour since 1970, centimetres per second; empty if none',
    MODIFY COLUMN trip_m      COMMENT 'Longest distance, metres, between the ends of a silence that counts as parking';

ALTER TABLE {database}.driver_quarters{on_cluster}
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN day         COMMENT 'UTC day of the quarter. A condition on it decides what is read',
    MODIFY COLUMN quarter     COMMENT 'Start of the quarter of an hour, UTC',
    MODIFY COLUMN fixes       COMMENT 'Number of fixes',
    MODIFY COLUMN distance_m  COMMENT 'Distance driven, metres. Standing adds none',
    MODIFY COLUMN moving_s    COMMENT 'Duration of trips, seconds',
    MODIFY COLUMN tracked_s   COMMENT 'Duration of trips and stops, seconds',
    MODIFY COLUMN speed_sum   COMMENT 'Sum of the speeds sent, metres per second. The mean is sum(speed_sum) / sum(speed_count)',
    MODIFY COLUMN speed_count COMMENT 'Number of fixes with a speed',
    MODIFY COLUMN speed_max   COMMENT 'Highest speed sent, metres per second; NULL: none',
    MODIFY COLUMN missing     COMMENT 'Number of sequence numbers (seq) that were skipped; across midnight UTC, only between fixes at most two hours from it',
    MODIFY COMMENT 'Totals of each driver and quarter of an hour. Computed every five minutes; rollups shows the lag';

ALTER TABLE {database}.trips{on_cluster}
    MODIFY COLUMN driver_id COMMENT 'Driver id',
    MODIFY COLUMN began     COMMENT 'Time of the first fix, UTC',
    MODIFY COLUMN ended     COMMENT 'Time of the last fix so far, UTC',
    MODIFY COLUMN seconds   COMMENT 'Duration from began to ended, seconds',
    MODIFY COLUMN metres    COMMENT 'Distance driven, metres, from the place of the stop before to that of the stop after',
    MODIFY COLUMN fixes     COMMENT 'Number of fixes after the first one',
    MODIFY COLUMN lat       COMMENT 'Latitude of the start, WGS84 degrees north',
    MODIFY COLUMN lng       COMMENT 'Longitude of the start, WGS84 degrees east',
    MODIFY COLUMN to_lat    COMMENT 'Latitude of the end, WGS84 degrees north',
    MODIFY COLUMN to_lng    COMMENT 'Longitude of the end, WGS84 degrees east',
    MODIFY COLUMN speed_max COMMENT 'Highest speed sent, metres per second; NULL: none',
    MODIFY COMMENT 'Trips: start, end, distance and duration. Each trip is one row, also over midnight. Computed every five minutes; rollups shows the lag';

ALTER TABLE {database}.stops{on_cluster}
    MODIFY COLUMN driver_id COMMENT 'Driver id',
    MODIFY COLUMN began     COMMENT 'Time of the first fix, UTC',
    MODIFY COLUMN ended     COMMENT 'Time of the last fix so far, UTC',
    MODIFY COLUMN seconds   COMMENT 'Duration from began to ended, seconds',
    MODIFY COLUMN fixes     COMMENT 'Number of fixes after the first one',
    MODIFY COLUMN lat       COMMENT 'Latitude of the stop, WGS84 degrees north',
    MODIFY COLUMN lng       COMMENT 'Longitude of the stop, WGS84 degrees east',
    MODIFY COMMENT 'Stops: place and duration. trip_rules_in_force has the shortest duration, 3 minutes for a car. Each stop is one row, also over midnight. Computed every five minutes; rollups shows the lag'
