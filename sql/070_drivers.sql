-- Names and groups of drivers. The live map shows them in addition to the id, and searches and groups by them. Optional: a driver without a row
-- is shown by its id. A row replaces the earlier row with the same driver_id.
CREATE TABLE IF NOT EXISTS {database}.drivers{on_cluster}
(
    driver_id  String                 COMMENT 'Driver id, as in fixes',
    name       String                 COMMENT 'Display name; empty: the map shows the id',
    `group`    LowCardinality(String) COMMENT 'Group, such as a depot or a customer; empty: none',
    vehicle    String                 COMMENT 'Vehicle, such as its number plate',
    phone      String                 COMMENT 'Phone number',
    note       String                 COMMENT 'Note, free text',
    written_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'Time the row was written, UTC; the newest row counts'
)
ENGINE = {engine:ReplacingMergeTree(written_at)}
ORDER BY driver_id
SETTINGS {no_tokens}, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'Names and groups of drivers, inserted by the operator. Read with FINAL'
