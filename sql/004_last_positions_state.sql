-- Each driver's newest fix. The maximum of the whole tuple is the newest by ts, then by seq: right under
-- late data, and unchanged by a row that comes twice.
CREATE TABLE IF NOT EXISTS {database}.last_positions_state
(
    driver_id String COMMENT 'Who',
    last SimpleAggregateFunction(max, Tuple(
        ts DateTime64(3, 'UTC'), seq UInt32, lat_e7 Int32, lng_e7 Int32, speed_cms UInt16,
        heading_cdeg UInt16, alt_dm Int32, acc_dm UInt16, received_at DateTime64(3, 'UTC')
    )) COMMENT 'The columns of positions, newest first'
)
ENGINE = AggregatingMergeTree
ORDER BY driver_id
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
