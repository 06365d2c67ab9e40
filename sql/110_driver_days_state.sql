-- What each driver did on each UTC day, in parts: a part is what lies of one trip, stop or gap in one quarter of an hour. Quarters, days of any
-- zone, trips and the whole are sums of the same parts, so they agree. Computed from fixes alone (360), a row is replaced whole when its
-- day was touched: more rows inserted is newer, and no clock is compared.
-- No PARTITION BY: all rows of a refresh are one part on the disk, so a refresh is visible whole or not at all. A row is hundreds of fixes, so
-- granules are small.
CREATE TABLE IF NOT EXISTS {database}.driver_days_state{on_cluster}
(
    day         Date                   COMMENT 'UTC day',
    driver_id   LowCardinality(String) COMMENT 'Driver id',
    parts Array(Tuple(
        quarter     UInt32, -- of an hour, since 1970
        piece       UInt32, -- the parts of one trip, stop or gap of the day have the same; of a dropped fix its seq
        kind        Enum8('gap' = 0, 'trip' = 1, 'stop' = 2, 'dropped' = 3), -- dropped: fixes that are jumps or inaccurate
        began_ms    Int64,
        ended_ms    Int64,
        metres      Float32, -- of trips; of gaps the straight line
        fixes       UInt32, -- fixes at which its legs end
        missing     UInt32, -- sequence numbers before them that did not arrive
        speed_count UInt32,
        speed_sum   UInt64, -- centimetres per second
        speed_max   UInt16,
        lat_e7      Int32, -- where it begins; of a stop its place
        lng_e7      Int32,
        to_lat_e7   Int32, -- where it ends
        to_lng_e7   Int32
    )) CODEC(ZSTD(1)) COMMENT 'Trips, stops, gaps and dropped fixes, split at every quarter of an hour and sorted by quarter',
    dropped Array(Tuple(ms Int64, seq UInt32, lat_e7 Int32, lng_e7 Int32))
        MATERIALIZED arrayMap(part -> (tupleElement(part, 'began_ms'), tupleElement(part, 'piece'), tupleElement(part, 'lat_e7'), tupleElement(part, 'lng_e7')),
            arrayFilter(part -> tupleElement(part, 'kind') = 'dropped', parts)) -- a mutation does not know part.kind
        CODEC(ZSTD(1)) COMMENT 'Dropped fixes. parts has them, too, but a query that needs only them reads much less from this column',
    rows        UInt64 COMMENT 'Value of rows in touched when the fixes of the day were read; if touched has more rows now, the day waits to be computed again',
    computed_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time the row was computed, UTC',
    -- 352 adds these to older tables.
    rules UInt64 COMMENT 'Hash of the limits in trip_rules_in_force with which the day was computed',
    derived_cms UInt16 COMMENT 'Highest speed derived from fixes without a speed, centimetres per second; 0 if none',
    derived Tuple(quarters Array(UInt32), cms Array(UInt16)) COMMENT 'Quarters of an hour, numbered from 1970-01-01 UTC, and the highest speed derived in each, centimetres per second; empty if no speed was derived',
    trip_m Float32 COMMENT 'Limit trip_m of trip_rules_in_force with which the day was computed, metres: a silence that ends at most this far from where it began counts as parking'
)
ENGINE = {engine:ReplacingMergeTree(rows)}
ORDER BY (day, driver_id)
TTL {retention:rollups, day}
SETTINGS index_granularity = 1024, {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Trips, stops and gaps of each driver and UTC day, updated every five minutes. Read with FINAL';

{shards}CREATE TABLE IF NOT EXISTS {database}.driver_days_state_all{on_cluster}
AS {database}.driver_days_state
ENGINE = Distributed('{cluster}', '{database}', 'driver_days_state')
