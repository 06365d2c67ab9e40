-- One row for each file of sql/ that was applied. `milepost run` waits until every file the binary was built with is listed.
CREATE TABLE IF NOT EXISTS {database}.schema_migrations{on_cluster}
(
    version    UInt32                  COMMENT 'Number of the file in sql/',
    name       String                  COMMENT 'Its name',
    checksum   String                  COMMENT 'Hash of its text, so that an edit is noticed',
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When'
)
ENGINE = {engine:ReplacingMergeTree}
ORDER BY version
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'What milepost migrate has applied'
