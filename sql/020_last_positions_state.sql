-- Each driver's newest fix. `version`, the version column of ReplacingMergeTree, is highest for the newest fix: it orders fixes by ts, then seq,
-- lat_e7, lng_e7, received_at, and a hash of the other values. If a fix arrived twice, the row that was received later stays. The order of
-- inserts does not matter: neither a late fix nor a row that is inserted again replaces a newer fix. Bits of version, from the highest: 48 for
-- ts, 32 each for seq, lat_e7 and lng_e7, 48 for received_at, 64 for the hash. Signed numbers are shifted to begin at 0.
CREATE TABLE IF NOT EXISTS {database}.last_positions_state{on_cluster}
(
    version UInt256 MATERIALIZED bitOr(bitOr(
            bitOr(bitShiftLeft(toUInt256(toUnixTimestamp64Milli(ts) + 140737488355328), 208), bitShiftLeft(toUInt256(seq), 176)),
            bitOr(bitShiftLeft(toUInt256(lat_e7 + 2147483648), 144), bitShiftLeft(toUInt256(lng_e7 + 2147483648), 112))), bitOr(
            bitShiftLeft(toUInt256(toUnixTimestamp64Milli(received_at) + 140737488355328), 64),
            toUInt256(cityHash64(speed_cms, heading_cdeg, alt_dm, acc_dm, attributes))))
        CODEC(Default) COMMENT 'Version column of ReplacingMergeTree, highest for the newest fix: made of ts, seq, lat_e7, lng_e7, received_at and a hash of the other values',
{stored_plain}
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY driver_id
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Newest fix of each driver, and older fixes until ClickHouse merges them. Query last_positions instead: a query without FINAL, or with a condition in PREWHERE, can return older fixes';

{shards}CREATE TABLE IF NOT EXISTS {database}.last_positions_state_all{on_cluster}
AS {database}.last_positions_state
ENGINE = Distributed('{cluster}', '{database}', 'last_positions_state', cityHash64(driver_id))
