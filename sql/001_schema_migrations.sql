-- One row for each file of sql/ that was applied. `milepost run` waits until every file that its binary contains has a row.
CREATE TABLE IF NOT EXISTS {database}.schema_migrations{on_cluster}
(
    version    UInt32                  COMMENT 'Number of the migration, as at the start of its file name',
    name       String                  COMMENT 'File name of the migration, without .sql',
    checksum   String                  COMMENT 'Hash of the file as released, to detect a file that was edited later',
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time applied, UTC'
)
ENGINE = {engine:ReplacingMergeTree}
ORDER BY version
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Migrations applied by `milepost migrate`'
