-- How far `milepost backfill` is, so that it goes on where it was stopped, alone, and `milepost erase` knows of it.
CREATE TABLE IF NOT EXISTS {database}.backfills
(
    job     String                       COMMENT 'What is moved (move), who moves it (run), or what was copied: the ids of the tables',
    step    String                       COMMENT 'Of a copy, a month. Of a run, its name',
    until   String                       COMMENT 'Of a copy, the last driver, in hexadecimal, or nobody: all were. Else: ended, or not',
    done_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'When'
)
ENGINE = ReplacingMergeTree(done_at)
ORDER BY (job, step)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1
