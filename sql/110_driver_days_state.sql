-- What each driver did on each UTC day, in parts: a part is the portion of one trip, stop or gap that lies in one quarter of an hour. Figures of
-- quarters, of days in any time zone and of trips are sums of the same parts, so they agree. A row is computed from fixes alone (sql/360). When
-- more rows are inserted for its day, it is computed again and replaced: the row with the largest `rows` is the newest, so no clocks are
-- compared. No PARTITION BY: all rows of a refresh are in one data part, so a refresh becomes visible as a whole or not at all. A row is made of
-- hundreds of fixes, so granules are small.
CREATE TABLE IF NOT EXISTS {database}.driver_days_state{on_cluster}
(
    day         Date                   COMMENT 'UTC day',
    driver_id   LowCardinality(String) COMMENT 'Driver id',
    parts Array(Tuple(
        quarter     UInt32, -- quarter of an hour, numbered from 1970-01-01 UTC
        piece       UInt32, -- number of the trip, stop or gap within the day; for a dropped fix, its seq
        kind        Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3), -- dropped: one fix, a jump or inaccurate
        began_ms    Int64,
        ended_ms    Int64,
        metres      Float32, -- distance driven on a trip, or straight line of a gap; otherwise 0
        fixes       UInt32, -- number of fixes at which legs of the part end
        missing     UInt32, -- number of sequence numbers missing before these fixes
        speed_count UInt32,
        speed_sum   UInt64, -- centimetres per second
        speed_max   UInt16,
        lat_e7      Int32, -- start of the part; for a stop, its place
        lng_e7      Int32,
        to_lat_e7   Int32, -- end of the part
        to_lng_e7   Int32
    )) CODEC(ZSTD(1)) COMMENT 'Trips, stops, gaps and dropped fixes, split at every quarter of an hour and sorted by quarter',
    dropped Array(Tuple(ms Int64, seq UInt32, lat_e7 Int32, lng_e7 Int32))
        MATERIALIZED arrayMap(part -> (tupleElement(part, 'began_ms'), tupleElement(part, 'piece'), tupleElement(part, 'lat_e7'), tupleElement(part, 'lng_e7')),
            arrayFilter(part -> tupleElement(part, 'kind') = 'dropped', parts)) -- tupleElement, because ClickHouse cannot resolve part.kind in a mutation
        CODEC(ZSTD(1)) COMMENT 'Dropped fixes. parts has them, too, but a query that needs only them reads much less from this column',
    rows        UInt64 COMMENT 'Sum of the column rows in the table touched, for the driver and day, when the fixes of the day were read; if that sum is higher now, the day waits to be computed again',
    computed_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time the row was computed, UTC',
    -- sql/352 adds these columns to older tables.
    rules UInt64 COMMENT 'Hash of the limits in trip_rules_in_force with which the day was computed',
    derived_cms UInt16 COMMENT 'Highest speed derived from fixes without a speed, centimetres per second; 0 if none',
    derived Tuple(quarters Array(UInt32), cms Array(UInt16)) COMMENT 'Quarters of an hour, numbered from 1970-01-01 UTC, and the highest speed derived in each, centimetres per second; empty if no speed was derived',
    trip_m Float32 COMMENT 'Limit trip_m of trip_rules_in_force with which the day was computed, metres: a silence that ends at most this far from where it began counts as parking',
    -- sql/353 adds these columns to older tables.
    final_kinds Array(Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3))
        MATERIALIZED arrayMap(
            part -> if(tupleElement(part, 'kind') = 'gap' AND tupleElement(part, 'ended_ms') - tupleElement(part, 'began_ms') > 3600000 AND tupleElement(part, 'metres') <= trip_m,
                'stop', toString(tupleElement(part, 'kind'))), parts)
        COMMENT 'Kind of each part, but stop for parking within the day: a silence that ended where it began',
    first_at UInt32
        MATERIALIZED arrayFirstIndex(part -> tupleElement(part, 'kind') != 'dropped', parts)
        COMMENT 'Index of the first part that is not a dropped fix, 0 if there is none',
    last_at UInt32
        MATERIALIZED arrayLastIndex(part -> tupleElement(part, 'kind') != 'dropped', parts)
        COMMENT 'Index of the last part that is not a dropped fix, 0 if there is none',
    first_fix Tuple(ms Int64, kind Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3), is_after_silence Bool, place Tuple(x Float64, y Float64, z Float64))
        MATERIALIZED (
            tupleElement(parts[first_at], 'began_ms'),
            if(first_at = 0, 'dropped', toString(tupleElement(parts[first_at], 'kind'))),
            first_at > 0 AND tupleElement(parts[first_at], 'kind') = 'gap' AND tupleElement(parts[first_at], 'began_ms') = tupleElement(parts[first_at], 'ended_ms'),
            arrayMap(
            (angle, lng) -> (6378137 * cos(angle) * cos(lng), 6378137 * cos(angle) * sin(lng), 6378137 * 0.9966471893352525 * sin(angle)),
            [atan(0.9966471893352525 * tan(radians(tupleElement(parts[first_at], 'to_lat_e7') / 1e7)))], [radians(tupleElement(parts[first_at], 'to_lng_e7') / 1e7)])[1])
        COMMENT 'First fix: epoch milliseconds, kind of its part, whether it ends a silence that began on an earlier day, and its place, metres from the centre of the earth',
    last_fix Tuple(day Date, trip_m Float32, ms Int64, kind Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3), lat_e7 Int32, lng_e7 Int32, place Tuple(x Float64, y Float64, z Float64))
        MATERIALIZED (
            day, trip_m, tupleElement(parts[last_at], 'ended_ms'),
            if(last_at = first_at AND tupleElement(first_fix, 'is_after_silence'), 'dropped', toString(final_kinds[last_at])),
            tupleElement(parts[last_at], 'to_lat_e7'), tupleElement(parts[last_at], 'to_lng_e7'),
            arrayMap(
            (angle, lng) -> (6378137 * cos(angle) * cos(lng), 6378137 * cos(angle) * sin(lng), 6378137 * 0.9966471893352525 * sin(angle)),
            [atan(0.9966471893352525 * tan(radians(tupleElement(parts[last_at], 'to_lat_e7') / 1e7)))], [radians(tupleElement(parts[last_at], 'to_lng_e7') / 1e7)])[1])
        COMMENT 'Last fix: day and trip_m of the row, epoch milliseconds, final kind of its part, and its place, also in metres from the centre of the earth. The kind is dropped if the only fix of the day ends a silence: the fix before it decides whether that was parking'
)
ENGINE = {engine:ReplacingMergeTree(rows)}
ORDER BY (day, driver_id)
TTL {retention:rollups, day}
SETTINGS index_granularity = 1024, {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Trips, stops and gaps of each driver and UTC day, updated every five minutes. Read with FINAL';

{shards}CREATE TABLE IF NOT EXISTS {database}.driver_days_state_all{on_cluster}
AS {database}.driver_days_state
ENGINE = Distributed('{cluster}', '{database}', 'driver_days_state')
