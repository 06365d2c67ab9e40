-- Drivers whose data must be erased. `milepost erase` writes here, and every milepost process drops positions of these drivers that arrive
-- later. The newest row of a driver counts. In a cluster, all shards share one such table.
CREATE TABLE IF NOT EXISTS {database}.erased{on_cluster}
(
    driver_id  String                  COMMENT 'Driver id',
    is_lifted  UInt8                   COMMENT '1: the erasure is lifted, later fixes of the driver are stored; 0: they are dropped',
    written_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time the row was written, UTC; the newest row counts'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY driver_id
SETTINGS {tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Erased drivers, written by `milepost erase`. Read with FINAL'
