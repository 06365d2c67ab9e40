-- Rewrites the comments of the tables and views that 0.1.0 created, and of all their columns, also of columns that later migrations added. New
-- databases have these comments from the start. A replica compares its columns, comments included, with the definition in Keeper. So each
-- comment must equal, byte for byte, the one in the file that creates the table.
ALTER TABLE {database}.schema_migrations{on_cluster}
    MODIFY COLUMN version    COMMENT 'Number of the migration, as at the start of its file name',
    MODIFY COLUMN name       COMMENT 'File name of the migration, without .sql',
    MODIFY COLUMN checksum   COMMENT 'Hash of the file as released, to detect a file that was edited later',
    MODIFY COLUMN applied_at COMMENT 'Time applied, UTC',
    MODIFY COMMENT 'Migrations applied by `milepost migrate`';

ALTER TABLE {database}.positions{on_cluster}
    MODIFY COLUMN driver_id    COMMENT 'Driver id',
    MODIFY COLUMN ts           COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq          COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat_e7       COMMENT 'Latitude, WGS84, 1e-7 degrees north',
    MODIFY COLUMN lng_e7       COMMENT 'Longitude, WGS84, 1e-7 degrees east',
    MODIFY COLUMN speed_cms    COMMENT 'Speed, centimetres per second; 65535: unknown',
    MODIFY COLUMN heading_cdeg COMMENT 'Heading, hundredths of a degree clockwise from north; 65535: unknown',
    MODIFY COLUMN alt_dm       COMMENT 'Altitude, decimetres above sea level or above the WGS84 ellipsoid, whichever the source reports; 2147483647: unknown',
    MODIFY COLUMN acc_dm       COMMENT 'Horizontal accuracy, decimetres; 65535: unknown',
    MODIFY COLUMN received_at  COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at  COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes   COMMENT 'Other payload fields, as the device sent them: those listed in the source setting `keep`, and those from which columns added by the operator are computed',
    MODIFY COLUMN lat          COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng          COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed        COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading      COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt          COMMENT 'Altitude, metres above sea level or above the WGS84 ellipsoid, whichever the source reports; NULL: unknown',
    MODIFY COLUMN acc          COMMENT 'Horizontal accuracy, metres; NULL: unknown',
    MODIFY COMMENT 'Every inserted fix. A fix that arrived twice is stored twice until ClickHouse merges the two rows. Query fixes instead';

{shards}ALTER TABLE {database}.positions_all{on_cluster}
    MODIFY COLUMN driver_id    COMMENT 'Driver id',
    MODIFY COLUMN ts           COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq          COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat_e7       COMMENT 'Latitude, WGS84, 1e-7 degrees north',
    MODIFY COLUMN lng_e7       COMMENT 'Longitude, WGS84, 1e-7 degrees east',
    MODIFY COLUMN speed_cms    COMMENT 'Speed, centimetres per second; 65535: unknown',
    MODIFY COLUMN heading_cdeg COMMENT 'Heading, hundredths of a degree clockwise from north; 65535: unknown',
    MODIFY COLUMN alt_dm       COMMENT 'Altitude, decimetres above sea level or above the WGS84 ellipsoid, whichever the source reports; 2147483647: unknown',
    MODIFY COLUMN acc_dm       COMMENT 'Horizontal accuracy, decimetres; 65535: unknown',
    MODIFY COLUMN received_at  COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at  COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes   COMMENT 'Other payload fields, as the device sent them: those listed in the source setting `keep`, and those from which columns added by the operator are computed',
    MODIFY COLUMN lat          COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng          COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed        COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading      COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt          COMMENT 'Altitude, metres above sea level or above the WGS84 ellipsoid, whichever the source reports; NULL: unknown',
    MODIFY COLUMN acc          COMMENT 'Horizontal accuracy, metres; NULL: unknown';

ALTER TABLE {database}.fixes{on_cluster}
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN ts          COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq         COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat         COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng         COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed       COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading     COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt         COMMENT 'Altitude, metres above sea level or above the WGS84 ellipsoid, whichever the source reports; NULL: unknown',
    MODIFY COLUMN acc         COMMENT 'Horizontal accuracy, metres; NULL: unknown',
    MODIFY COLUMN received_at COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes  COMMENT 'Other payload fields, as the device sent them: those listed in the source setting `keep`, and those from which columns added by the operator are computed',
    MODIFY COMMENT 'Every fix once, in plain units. Filter by ts, so that ClickHouse reads only the days in that range';

ALTER TABLE {database}.last_positions_state{on_cluster}
    MODIFY COLUMN version      COMMENT 'Version column of ReplacingMergeTree, highest for the newest fix: made of ts, seq, lat_e7, lng_e7, received_at and a hash of the other values',
    MODIFY COLUMN driver_id    COMMENT 'Driver id',
    MODIFY COLUMN ts           COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq          COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat_e7       COMMENT 'Latitude, WGS84, 1e-7 degrees north',
    MODIFY COLUMN lng_e7       COMMENT 'Longitude, WGS84, 1e-7 degrees east',
    MODIFY COLUMN speed_cms    COMMENT 'Speed, centimetres per second; 65535: unknown',
    MODIFY COLUMN heading_cdeg COMMENT 'Heading, hundredths of a degree clockwise from north; 65535: unknown',
    MODIFY COLUMN alt_dm       COMMENT 'Altitude, decimetres above sea level or above the WGS84 ellipsoid, whichever the source reports; 2147483647: unknown',
    MODIFY COLUMN acc_dm       COMMENT 'Horizontal accuracy, decimetres; 65535: unknown',
    MODIFY COLUMN received_at  COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at  COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes   COMMENT 'Other payload fields, as the device sent them: those listed in the source setting `keep`, and those from which columns added by the operator are computed',
    MODIFY COLUMN lat          COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng          COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed        COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading      COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt          COMMENT 'Altitude, metres above sea level or above the WGS84 ellipsoid, whichever the source reports; NULL: unknown',
    MODIFY COLUMN acc          COMMENT 'Horizontal accuracy, metres; NULL: unknown',
    MODIFY COMMENT 'Newest fix of each driver, and older fixes until ClickHouse merges them. Query last_positions instead: a query without FINAL, or with a condition in PREWHERE, can return older fixes';

{shards}ALTER TABLE {database}.last_positions_state_all{on_cluster}
    MODIFY COLUMN version      COMMENT 'Version column of ReplacingMergeTree, highest for the newest fix: made of ts, seq, lat_e7, lng_e7, received_at and a hash of the other values',
    MODIFY COLUMN driver_id    COMMENT 'Driver id',
    MODIFY COLUMN ts           COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq          COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat_e7       COMMENT 'Latitude, WGS84, 1e-7 degrees north',
    MODIFY COLUMN lng_e7       COMMENT 'Longitude, WGS84, 1e-7 degrees east',
    MODIFY COLUMN speed_cms    COMMENT 'Speed, centimetres per second; 65535: unknown',
    MODIFY COLUMN heading_cdeg COMMENT 'Heading, hundredths of a degree clockwise from north; 65535: unknown',
    MODIFY COLUMN alt_dm       COMMENT 'Altitude, decimetres above sea level or above the WGS84 ellipsoid, whichever the source reports; 2147483647: unknown',
    MODIFY COLUMN acc_dm       COMMENT 'Horizontal accuracy, decimetres; 65535: unknown',
    MODIFY COLUMN received_at  COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at  COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes   COMMENT 'Other payload fields, as the device sent them: those listed in the source setting `keep`, and those from which columns added by the operator are computed',
    MODIFY COLUMN lat          COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng          COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed        COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading      COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt          COMMENT 'Altitude, metres above sea level or above the WGS84 ellipsoid, whichever the source reports; NULL: unknown',
    MODIFY COLUMN acc          COMMENT 'Horizontal accuracy, metres; NULL: unknown';

ALTER TABLE {database}.last_positions{on_cluster}
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN ts          COMMENT 'Time of the fix, UTC',
    MODIFY COLUMN seq         COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN lat         COMMENT 'Latitude, WGS84 degrees north',
    MODIFY COLUMN lng         COMMENT 'Longitude, WGS84 degrees east',
    MODIFY COLUMN speed       COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN heading     COMMENT 'Heading, degrees clockwise from north; NULL: unknown',
    MODIFY COLUMN alt         COMMENT 'Altitude, metres above sea level or above the WGS84 ellipsoid, whichever the source reports; NULL: unknown',
    MODIFY COLUMN acc         COMMENT 'Horizontal accuracy, metres; NULL: unknown',
    MODIFY COLUMN received_at COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN inserted_at COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN attributes  COMMENT 'Other payload fields, as the device sent them: those listed in the source setting `keep`, and those from which columns added by the operator are computed',
    MODIFY COMMENT 'Last position of each driver: one row per driver, its newest fix by ts, then by seq';

ALTER TABLE {database}.rejects{on_cluster}
    MODIFY COLUMN received_at   COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN topic         COMMENT 'First 1,024 bytes of the MQTT topic',
    MODIFY COLUMN driver_id     COMMENT 'Driver id; empty if neither the topic nor the payload names a driver',
    MODIFY COLUMN reason        COMMENT 'Reason: the rule of the input contract that was broken, such as bad_ts',
    MODIFY COLUMN detail        COMMENT 'Description of the error',
    MODIFY COLUMN payload       COMMENT 'Rejected point as sent, or the whole message if no single point is at fault; at most its first 64 KiB',
    MODIFY COLUMN payload_bytes COMMENT 'Length of the payload before it was cut, in bytes',
    MODIFY COLUMN count         COMMENT 'Number of rejects that this row stands for; more than 1 if rejects came faster than the flood limit and were merged into one row',
    MODIFY COLUMN inserted_at   COMMENT 'Time of the insert, UTC, by the clock of ClickHouse',
    MODIFY COMMENT 'Rejected points and messages, each with its reason';

{shards}ALTER TABLE {database}.rejects_all{on_cluster}
    MODIFY COLUMN received_at   COMMENT 'Time milepost received the message, UTC, by its own clock',
    MODIFY COLUMN topic         COMMENT 'First 1,024 bytes of the MQTT topic',
    MODIFY COLUMN driver_id     COMMENT 'Driver id; empty if neither the topic nor the payload names a driver',
    MODIFY COLUMN reason        COMMENT 'Reason: the rule of the input contract that was broken, such as bad_ts',
    MODIFY COLUMN detail        COMMENT 'Description of the error',
    MODIFY COLUMN payload       COMMENT 'Rejected point as sent, or the whole message if no single point is at fault; at most its first 64 KiB',
    MODIFY COLUMN payload_bytes COMMENT 'Length of the payload before it was cut, in bytes',
    MODIFY COLUMN count         COMMENT 'Number of rejects that this row stands for; more than 1 if rejects came faster than the flood limit and were merged into one row',
    MODIFY COLUMN inserted_at   COMMENT 'Time of the insert, UTC, by the clock of ClickHouse';

ALTER TABLE {database}.fences{on_cluster}
    MODIFY COLUMN name            COMMENT 'Fence name',
    MODIFY COLUMN valid_from      COMMENT 'Start of validity, UTC: earlier fixes do not count',
    MODIFY COLUMN valid_until     COMMENT 'End of validity, UTC, exclusive: later fixes do not count',
    MODIFY COLUMN polygons        COMMENT 'Polygons as in GeoJSON: lists of rings (outline, then holes) of points, WGS84 degrees',
    MODIFY COLUMN written_at      COMMENT 'Time the row was written, UTC; the newest row counts',
    MODIFY COLUMN speed_limit_kmh COMMENT 'Speed limit inside, km/h; above it a driver is fast. NULL: none',
    MODIFY COLUMN stay_max_s      COMMENT 'Longest stay inside, seconds; a driver who stays longer has overstayed. NULL: no limit',
    MODIFY COLUMN silent_for_s    COMMENT 'Seconds without a fix after which a driver inside counts as silent; 0: never. NULL: events.silent_for applies, as outside the fence',
    MODIFY COLUMN hours           COMMENT 'Opening hours, such as Mo-Fr 06:00-18:00, Sa 08:00-12:00: crossing the border at other times is off_hours. NULL: always open',
    MODIFY COLUMN hours_zone      COMMENT 'Time zone of hours, such as Europe/Berlin. NULL: UTC',
    MODIFY COLUMN drivers         COMMENT 'Driver ids that the fence is for: other drivers cause no events. Empty: all drivers',
    MODIFY COMMENT 'Geofences, written by `milepost fences`. Read with FINAL';

ALTER TABLE {database}.erased{on_cluster}
    MODIFY COLUMN driver_id  COMMENT 'Driver id',
    MODIFY COLUMN is_lifted  COMMENT '1: the erasure is lifted, later fixes of the driver are stored; 0: they are dropped',
    MODIFY COLUMN written_at COMMENT 'Time the row was written, UTC; the newest row counts',
    MODIFY COMMENT 'Erased drivers, written by `milepost erase`. Read with FINAL';

ALTER TABLE {database}.events{on_cluster}
    MODIFY COLUMN driver_id  COMMENT 'Driver id',
    MODIFY COLUMN ts         COMMENT 'Time of the fix of the event, UTC. entered, overstayed: first fix inside; left: first fix outside; off_hours: same fix as entered or left; silent: last fix before the silence; heard: first fix after it; fast, slow: first fix that was fast, or no longer fast; jump: wrong fix',
    MODIFY COLUMN seq        COMMENT 'Sequence number from the device, 0 if none',
    MODIFY COLUMN kind       COMMENT 'Kind: entered, overstayed, left, off_hours, silent, heard, fast, slow or jump',
    MODIFY COLUMN fence      COMMENT 'Fence name for entered, overstayed, left and off_hours, and for fast and slow if the speed limit is that of a fence; otherwise empty',
    MODIFY COLUMN lat        COMMENT 'Latitude of the fix, WGS84 degrees north',
    MODIFY COLUMN lng        COMMENT 'Longitude of the fix, WGS84 degrees east',
    MODIFY COLUMN speed      COMMENT 'Speed, metres per second; NULL: unknown',
    MODIFY COLUMN known_at   COMMENT 'Time the event became known, UTC, by the clock of ClickHouse. silent: end of the allowed time. overstayed: end of the allowed time, or insert of the fix that showed it, whichever is earlier. fast, jump: insert of the fix after the one at ts. entered, left, off_hours: insert of the fix that confirmed the crossing, or, without one, two minutes after the insert of the fix at ts. Otherwise: insert of the fix that showed it',
    MODIFY COLUMN mqtt_at    COMMENT 'Time the broker acknowledged the event, UTC; NULL: not acknowledged',
    MODIFY COLUMN webhook_at COMMENT 'Time the webhook accepted the event, UTC; NULL: not accepted',
    MODIFY COLUMN written_at COMMENT 'Time the row was written, UTC; the newest row counts',
    MODIFY COMMENT 'Events of drivers, written by `milepost events`. Read with FINAL';

ALTER TABLE {database}.touched{on_cluster}
    MODIFY COLUMN day        COMMENT 'UTC day',
    MODIFY COLUMN driver_id  COMMENT 'Driver id',
    MODIFY COLUMN rows       COMMENT 'Number of rows inserted so far for the day and the two hours before and after it, duplicates included',
    MODIFY COLUMN touched_at COMMENT 'Time of the newest insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN speed_max  COMMENT 'Highest speed sent, centimetres per second; 0 if none',
    MODIFY COLUMN seen       COMMENT 'Bookkeeping, only in rows of the day 2049-01-01: number of the refresh, and the data parts of positions whose rows are counted',
    MODIFY COMMENT 'Number of rows inserted for each driver and UTC day. When the number grows, the roll-up computes the day again';

{shards}ALTER TABLE {database}.touched_all{on_cluster}
    MODIFY COLUMN day        COMMENT 'UTC day',
    MODIFY COLUMN driver_id  COMMENT 'Driver id',
    MODIFY COLUMN rows       COMMENT 'Number of rows inserted so far for the day and the two hours before and after it, duplicates included',
    MODIFY COLUMN touched_at COMMENT 'Time of the newest insert, UTC, by the clock of ClickHouse',
    MODIFY COLUMN speed_max  COMMENT 'Highest speed sent, centimetres per second; 0 if none',
    MODIFY COLUMN seen       COMMENT 'Bookkeeping, only in rows of the day 2049-01-01: number of the refresh, and the data parts of positions whose rows are counted';

ALTER TABLE {database}.driver_days_state{on_cluster}
    MODIFY COLUMN day         COMMENT 'UTC day',
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN parts       COMMENT 'Trips, stops, gaps and dropped fixes, split at every quarter of an hour and sorted by quarter',
    MODIFY COLUMN dropped     COMMENT 'Dropped fixes. parts has them, too, but a query that needs only them reads much less from this column',
    MODIFY COLUMN rows        COMMENT 'Sum of the column rows in the table touched, for the driver and day, when the fixes of the day were read; if that sum is higher now, the day waits to be computed again',
    MODIFY COLUMN computed_at COMMENT 'Time the row was computed, UTC',
    MODIFY COLUMN rules       COMMENT 'Hash of the limits in trip_rules_in_force with which the day was computed',
    MODIFY COLUMN derived_cms COMMENT 'Highest speed derived from fixes without a speed, centimetres per second; 0 if none',
    MODIFY COLUMN derived     COMMENT 'Quarters of an hour, numbered from 1970-01-01 UTC, and the highest speed derived in each, centimetres per second; empty if no speed was derived',
    MODIFY COLUMN trip_m      COMMENT 'Limit trip_m of trip_rules_in_force with which the day was computed, metres: a silence that ends at most this far from where it began counts as parking',
    MODIFY COLUMN final_kinds COMMENT 'Kind of each part, but stop for parking within the day: a silence that ended where it began',
    MODIFY COLUMN first_at    COMMENT 'Index of the first part that is not a dropped fix, 0 if there is none',
    MODIFY COLUMN last_at     COMMENT 'Index of the last part that is not a dropped fix, 0 if there is none',
    MODIFY COLUMN first_fix   COMMENT 'First fix: epoch milliseconds, kind of its part, whether it ends a silence that began on an earlier day, and its place, metres from the centre of the earth',
    MODIFY COLUMN last_fix    COMMENT 'Last fix: day and trip_m of the row, epoch milliseconds, final kind of its part, and its place, also in metres from the centre of the earth. The kind is dropped if the only fix of the day ends a silence: the fix before it decides whether that was parking',
    MODIFY COMMENT 'Trips, stops and gaps of each driver and UTC day, updated every five minutes. Read with FINAL';

{shards}ALTER TABLE {database}.driver_days_state_all{on_cluster}
    MODIFY COLUMN day         COMMENT 'UTC day',
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN parts       COMMENT 'Trips, stops, gaps and dropped fixes, split at every quarter of an hour and sorted by quarter',
    MODIFY COLUMN dropped     COMMENT 'Dropped fixes. parts has them, too, but a query that needs only them reads much less from this column',
    MODIFY COLUMN rows        COMMENT 'Sum of the column rows in the table touched, for the driver and day, when the fixes of the day were read; if that sum is higher now, the day waits to be computed again',
    MODIFY COLUMN computed_at COMMENT 'Time the row was computed, UTC',
    MODIFY COLUMN rules       COMMENT 'Hash of the limits in trip_rules_in_force with which the day was computed',
    MODIFY COLUMN derived_cms COMMENT 'Highest speed derived from fixes without a speed, centimetres per second; 0 if none',
    MODIFY COLUMN derived     COMMENT 'Quarters of an hour, numbered from 1970-01-01 UTC, and the highest speed derived in each, centimetres per second; empty if no speed was derived',
    MODIFY COLUMN trip_m      COMMENT 'Limit trip_m of trip_rules_in_force with which the day was computed, metres: a silence that ends at most this far from where it began counts as parking',
    MODIFY COLUMN final_kinds COMMENT 'Kind of each part, but stop for parking within the day: a silence that ended where it began',
    MODIFY COLUMN first_at    COMMENT 'Index of the first part that is not a dropped fix, 0 if there is none',
    MODIFY COLUMN last_at     COMMENT 'Index of the last part that is not a dropped fix, 0 if there is none',
    MODIFY COLUMN first_fix   COMMENT 'First fix: epoch milliseconds, kind of its part, whether it ends a silence that began on an earlier day, and its place, metres from the centre of the earth',
    MODIFY COLUMN last_fix    COMMENT 'Last fix: day and trip_m of the row, epoch milliseconds, final kind of its part, and its place, also in metres from the centre of the earth. The kind is dropped if the only fix of the day ends a silence: the fix before it decides whether that was parking';

ALTER TABLE {database}.driver_quarters{on_cluster}
    MODIFY COLUMN driver_id   COMMENT 'Driver id',
    MODIFY COLUMN day         COMMENT 'UTC day of the quarter. Filter by it, so that ClickHouse reads only those days',
    MODIFY COLUMN quarter     COMMENT 'Start of the quarter of an hour, UTC',
    MODIFY COLUMN fixes       COMMENT 'Number of fixes',
    MODIFY COLUMN distance_m  COMMENT 'Distance driven on trips, metres. Stops and gaps add nothing',
    MODIFY COLUMN moving_s    COMMENT 'Duration of trips, seconds',
    MODIFY COLUMN tracked_s   COMMENT 'Duration of trips and stops, seconds',
    MODIFY COLUMN speed_sum   COMMENT 'Sum of the speeds sent, metres per second. The mean is sum(speed_sum) / sum(speed_count)',
    MODIFY COLUMN speed_count COMMENT 'Number of fixes with a speed',
    MODIFY COLUMN speed_max   COMMENT 'Highest speed sent, metres per second; NULL: none',
    MODIFY COLUMN missing     COMMENT 'Number of values of seq that are missing between each fix of the quarter and the fix before it. If the fix before is older than 22:00 UTC of the previous day, none of them count',
    MODIFY COMMENT 'Totals of each driver and quarter of an hour, updated every five minutes. For the lag, query the view rollups';

ALTER TABLE {database}.trips{on_cluster}
    MODIFY COLUMN driver_id COMMENT 'Driver id',
    MODIFY COLUMN began     COMMENT 'Time of the first fix, UTC',
    MODIFY COLUMN ended     COMMENT 'Time of the last fix so far, UTC',
    MODIFY COLUMN seconds   COMMENT 'Duration from began to ended, seconds',
    MODIFY COLUMN metres    COMMENT 'Distance driven, metres, measured from the place of the previous stop, if any, to the place of the next stop, if any',
    MODIFY COLUMN fixes     COMMENT 'Number of fixes after the first one',
    MODIFY COLUMN lat       COMMENT 'Latitude of the start, WGS84 degrees north',
    MODIFY COLUMN lng       COMMENT 'Longitude of the start, WGS84 degrees east',
    MODIFY COLUMN to_lat    COMMENT 'Latitude of the end, WGS84 degrees north',
    MODIFY COLUMN to_lng    COMMENT 'Longitude of the end, WGS84 degrees east',
    MODIFY COLUMN speed_max COMMENT 'Highest speed sent, metres per second; NULL: none',
    MODIFY COMMENT 'Trips: start, end, distance and duration. A trip is one row even if it crosses midnight. Updated every five minutes; for the lag, query the view rollups';

ALTER TABLE {database}.stops{on_cluster}
    MODIFY COLUMN driver_id COMMENT 'Driver id',
    MODIFY COLUMN began     COMMENT 'Time of the first fix, UTC',
    MODIFY COLUMN ended     COMMENT 'Time of the last fix so far, UTC',
    MODIFY COLUMN seconds   COMMENT 'Duration from began to ended, seconds',
    MODIFY COLUMN fixes     COMMENT 'Number of fixes after the first one',
    MODIFY COLUMN lat       COMMENT 'Latitude of the stop, WGS84 degrees north',
    MODIFY COLUMN lng       COMMENT 'Longitude of the stop, WGS84 degrees east',
    MODIFY COMMENT 'Stops: place and duration. A stop is one row even if it crosses midnight. It lasts at least stop_s of trip_rules_in_force, 3 minutes for a car; next to a silence or to midnight UTC it may be shorter. Updated every five minutes; for the lag, query the view rollups'
