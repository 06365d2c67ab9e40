-- Adds columns with what the views (sql/370) need to connect a day to the days before and after it. All of them are computed from the
-- column `parts`: when a row is inserted and, for older rows, when it is read. The expressions use tupleElement(part, 'kind') instead of part.kind,
-- which ClickHouse cannot resolve in a mutation. Where an expression uses a value more than once, arrayMap over a list with this one value
-- gives the value a name.
ALTER TABLE {database}.driver_days_state{on_cluster}
    ADD COLUMN IF NOT EXISTS final_kinds Array(Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3))
        MATERIALIZED arrayMap(
            part -> if(tupleElement(part, 'kind') = 'gap' AND tupleElement(part, 'ended_ms') - tupleElement(part, 'began_ms') > 3600000 AND tupleElement(part, 'metres') <= trip_m,
                'stop', toString(tupleElement(part, 'kind'))), parts)
        COMMENT 'Kind of each part, but stop for parking within the day: a silence that ended where it began',
    ADD COLUMN IF NOT EXISTS first_at UInt32
        MATERIALIZED arrayFirstIndex(part -> tupleElement(part, 'kind') != 'dropped', parts)
        COMMENT 'Index of the first part that is not a dropped fix, 0 if there is none',
    ADD COLUMN IF NOT EXISTS last_at UInt32
        MATERIALIZED arrayLastIndex(part -> tupleElement(part, 'kind') != 'dropped', parts)
        COMMENT 'Index of the last part that is not a dropped fix, 0 if there is none',
    ADD COLUMN IF NOT EXISTS first_fix Tuple(ms Int64, kind Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3), is_after_silence Bool, place Tuple(x Float64, y Float64, z Float64))
        MATERIALIZED (
            tupleElement(parts[first_at], 'began_ms'),
            if(first_at = 0, 'dropped', toString(tupleElement(parts[first_at], 'kind'))),
            first_at > 0 AND tupleElement(parts[first_at], 'kind') = 'gap' AND tupleElement(parts[first_at], 'began_ms') = tupleElement(parts[first_at], 'ended_ms'),
            arrayMap(
            (angle, lng) -> (6378137 * cos(angle) * cos(lng), 6378137 * cos(angle) * sin(lng), 6378137 * 0.9966471893352525 * sin(angle)),
            [atan(0.9966471893352525 * tan(radians(tupleElement(parts[first_at], 'to_lat_e7') / 1e7)))], [radians(tupleElement(parts[first_at], 'to_lng_e7') / 1e7)])[1])
        COMMENT 'First fix: epoch milliseconds, kind of its part, whether it ends a silence that began on an earlier day, and its place, metres from the centre of the earth',
    ADD COLUMN IF NOT EXISTS last_fix Tuple(day Date, trip_m Float32, ms Int64, kind Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3), lat_e7 Int32, lng_e7 Int32, place Tuple(x Float64, y Float64, z Float64))
        MATERIALIZED (
            day, trip_m, tupleElement(parts[last_at], 'ended_ms'),
            if(last_at = first_at AND tupleElement(first_fix, 'is_after_silence'), 'dropped', toString(final_kinds[last_at])),
            tupleElement(parts[last_at], 'to_lat_e7'), tupleElement(parts[last_at], 'to_lng_e7'),
            arrayMap(
            (angle, lng) -> (6378137 * cos(angle) * cos(lng), 6378137 * cos(angle) * sin(lng), 6378137 * 0.9966471893352525 * sin(angle)),
            [atan(0.9966471893352525 * tan(radians(tupleElement(parts[last_at], 'to_lat_e7') / 1e7)))], [radians(tupleElement(parts[last_at], 'to_lng_e7') / 1e7)])[1])
        COMMENT 'Last fix: day and trip_m of the row, epoch milliseconds, final kind of its part, and its place, also in metres from the centre of the earth. The kind is dropped if the only fix of the day ends a silence: the fix before it decides whether that was parking';

{shards}ALTER TABLE {database}.driver_days_state_all{on_cluster}
    ADD COLUMN IF NOT EXISTS final_kinds Array(Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3))
        MATERIALIZED arrayMap(
            part -> if(tupleElement(part, 'kind') = 'gap' AND tupleElement(part, 'ended_ms') - tupleElement(part, 'began_ms') > 3600000 AND tupleElement(part, 'metres') <= trip_m,
                'stop', toString(tupleElement(part, 'kind'))), parts)
        COMMENT 'Kind of each part, but stop for parking within the day: a silence that ended where it began',
    ADD COLUMN IF NOT EXISTS first_at UInt32
        MATERIALIZED arrayFirstIndex(part -> tupleElement(part, 'kind') != 'dropped', parts)
        COMMENT 'Index of the first part that is not a dropped fix, 0 if there is none',
    ADD COLUMN IF NOT EXISTS last_at UInt32
        MATERIALIZED arrayLastIndex(part -> tupleElement(part, 'kind') != 'dropped', parts)
        COMMENT 'Index of the last part that is not a dropped fix, 0 if there is none',
    ADD COLUMN IF NOT EXISTS first_fix Tuple(ms Int64, kind Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3), is_after_silence Bool, place Tuple(x Float64, y Float64, z Float64))
        MATERIALIZED (
            tupleElement(parts[first_at], 'began_ms'),
            if(first_at = 0, 'dropped', toString(tupleElement(parts[first_at], 'kind'))),
            first_at > 0 AND tupleElement(parts[first_at], 'kind') = 'gap' AND tupleElement(parts[first_at], 'began_ms') = tupleElement(parts[first_at], 'ended_ms'),
            arrayMap(
            (angle, lng) -> (6378137 * cos(angle) * cos(lng), 6378137 * cos(angle) * sin(lng), 6378137 * 0.9966471893352525 * sin(angle)),
            [atan(0.9966471893352525 * tan(radians(tupleElement(parts[first_at], 'to_lat_e7') / 1e7)))], [radians(tupleElement(parts[first_at], 'to_lng_e7') / 1e7)])[1])
        COMMENT 'First fix: epoch milliseconds, kind of its part, whether it ends a silence that began on an earlier day, and its place, metres from the centre of the earth',
    ADD COLUMN IF NOT EXISTS last_fix Tuple(day Date, trip_m Float32, ms Int64, kind Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3), lat_e7 Int32, lng_e7 Int32, place Tuple(x Float64, y Float64, z Float64))
        MATERIALIZED (
            day, trip_m, tupleElement(parts[last_at], 'ended_ms'),
            if(last_at = first_at AND tupleElement(first_fix, 'is_after_silence'), 'dropped', toString(final_kinds[last_at])),
            tupleElement(parts[last_at], 'to_lat_e7'), tupleElement(parts[last_at], 'to_lng_e7'),
            arrayMap(
            (angle, lng) -> (6378137 * cos(angle) * cos(lng), 6378137 * cos(angle) * sin(lng), 6378137 * 0.9966471893352525 * sin(angle)),
            [atan(0.9966471893352525 * tan(radians(tupleElement(parts[last_at], 'to_lat_e7') / 1e7)))], [radians(tupleElement(parts[last_at], 'to_lng_e7') / 1e7)])[1])
        COMMENT 'Last fix: day and trip_m of the row, epoch milliseconds, final kind of its part, and its place, also in metres from the centre of the earth. The kind is dropped if the only fix of the day ends a silence: the fix before it decides whether that was parking'
