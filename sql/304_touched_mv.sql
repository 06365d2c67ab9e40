-- Every five minutes, counts the rows of those data parts of positions that are not counted yet, and adds the counts to touched. So inserts are
-- faster than with the view of sql/101, which ran on every insert. A record in touched lists the counted parts. Its day is 2049-01-01, which no
-- retention reaches, and its driver_id is the server's UUID. The record and the counts are written in one data part, so both are stored or
-- neither. No clocks are compared.
--   counted      A part is already counted if the record has its name and hash, or if a merge or a mutation made it from recorded parts only.
--                Then its first block is the first block of a recorded part, and its last block is the last block of the same or another
--                recorded part. On replicas, blocks arrive in any order, so recorded parts must also have every block in between.
--   not counted  Of every other part, this refresh counts all rows. If a merge mixed counted rows with new ones, the counted rows count again:
--                their days are computed once more, with the same result.
-- Each server counts the parts that it stores, including parts that reach a replica late. A server without a record starts from the records of
-- the others. If no server has a record, but touched has rows, sql/101 has counted every part that is at least ten minutes older than this view.
DROP VIEW IF EXISTS {database}.touched_mv{on_cluster} SYNC;

ALTER TABLE {database}.touched{on_cluster}
    ADD COLUMN IF NOT EXISTS seen SimpleAggregateFunction(max, Tuple(number UInt64, parts Array(Tuple(name String, hash String))))
    COMMENT 'Bookkeeping, only in rows of the day 2049-01-01: number of the refresh, and the data parts of positions whose rows are counted';

{shards}ALTER TABLE {database}.touched_all{on_cluster}
    ADD COLUMN IF NOT EXISTS seen SimpleAggregateFunction(max, Tuple(number UInt64, parts Array(Tuple(name String, hash String))));

CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.touched_mv{on_cluster}
REFRESH EVERY 5 MINUTE APPEND TO {database}.touched AS
WITH
    toDate('2049-01-01') AS never,
    toString(serverUUID()) AS server,
    records AS
    (
        SELECT driver_id AS recorder, max(seen) AS newest FROM {database}.touched WHERE day = toDate('2049-01-01') GROUP BY driver_id
    ),
    -- The recorded parts of each partition: name, hash, first and last block.
    recorded AS
    (
        SELECT
            splitByChar('_', part.1)[1] AS partition,
            groupArray((part.1, part.2, toInt64(splitByChar('_', part.1)[2]), toInt64(splitByChar('_', part.1)[3]))) AS old
        FROM (SELECT arrayJoin(newest.2) AS part FROM records WHERE recorder = server OR server NOT IN (SELECT recorder FROM records))
        GROUP BY partition
    ),
    stored AS
    (
        SELECT name, hash_of_all_files AS hash, partition_id, min_block_number AS first, max_block_number AS last, modification_time, active
        FROM system.parts
        WHERE database = '{database}' AND table = 'positions'
    ),
    present AS
    (
        SELECT
            name, hash,
            has(arrayMap(it -> (it.1, it.2), old), (name, hash))
            OR NOT has(old.1, name)
                AND arrayExists(it -> it.3 = first AND it.4 <= last, old) AND arrayExists(it -> it.3 >= first AND it.4 = last, old)
                AND ((SELECT NOT match(engine, '^(Replicated|Shared)') FROM system.tables WHERE database = '{database}' AND name = 'positions')
                    OR arraySum(it -> if(it.3 >= first AND it.4 <= last, it.4 - it.3 + 1, 0), old) = last - first + 1)
            OR (SELECT count() = 0 FROM records) AND (SELECT count() > 0 FROM {database}.touched)
                AND modification_time < (
                    SELECT metadata_modification_time FROM system.tables WHERE database = '{database}' AND name = 'touched_mv'
                ) - INTERVAL 10 MINUTE AS is_counted
        FROM stored LEFT JOIN recorded ON partition_id = partition
        WHERE active
    ),
    -- One query returns both the number of rows of each day and driver, and the parts that were read.
    counted AS
    (
        SELECT
            _part AS part, arrayJoin(arrayDistinct([toDate(ts - INTERVAL 2 HOUR), toDate(ts + INTERVAL 2 HOUR)])) AS day, driver_id,
            count() AS number, max(inserted_at) AS newest_at, maxIf(speed_cms, speed_cms != 65535) AS fastest
        FROM {database}.positions
        WHERE _part IN (SELECT name FROM present WHERE NOT is_counted)
        GROUP BY GROUPING SETS ((day, driver_id), (part))
    )
SELECT
    day, driver_id, sum(number) AS rows, max(newest_at) AS touched_at, max(fastest) AS speed_max,
    if(day = never, (any((SELECT max(newest.1) FROM records)) + 1, groupArrayIf((part, hash), part != '')), (0, [])) AS seen
FROM
(
    SELECT
        if(part = '', day, never) AS day, if(part = '', driver_id, server) AS driver_id, if(part = '', number, 0) AS number,
        newest_at, fastest, part, hash
    FROM counted LEFT JOIN stored ON part = name
    UNION ALL
    SELECT never, server, 0, toDateTime64(0, 3, 'UTC'), 0, name, hash FROM present WHERE is_counted
    UNION ALL
    SELECT never, server, 0, now64(3), 0, '', '' -- a record is written even if there is no part
)
GROUP BY day, driver_id
SETTINGS max_insert_threads = 1, min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 100000000000, group_by_two_level_threshold = 0, group_by_two_level_threshold_bytes = 0;

ALTER TABLE {database}.driver_days_mv{on_cluster}
    MODIFY REFRESH EVERY 5 MINUTE DEPENDS ON {database}.touched_mv APPEND
