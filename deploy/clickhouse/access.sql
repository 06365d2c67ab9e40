-- Roles, users and limits for your own ClickHouse server (docker-compose.yml uses users.xml instead). Replace each hash by the
-- output of: printf %s "$PASSWORD" | sha256sum. Then run this file as an administrator with access_management; it can be run again.
-- The grants are on two databases: fleet, milepost's default, and fleet_ask, which contains the parameterised views.

-- Grants are given to roles, and users only have a role. So a second milepost cluster needs only another user with the same role.
CREATE ROLE IF NOT EXISTS milepost_writer;
-- For `milepost run`: inserts rows, and reads which migrations were applied. It cannot read positions.
GRANT INSERT ON fleet.positions TO milepost_writer;
GRANT INSERT ON fleet.rejects TO milepost_writer;
GRANT SELECT ON fleet.schema_migrations TO milepost_writer;
-- The list of erased drivers: milepost inserts no rows of theirs.
GRANT SELECT ON fleet.erased TO milepost_writer;
-- `milepost check` reads the server's defaults for deduplication and fsync.
GRANT SELECT ON system.merge_tree_settings TO milepost_writer;
-- `milepost check` counts the inserts per second that the server receives. Without this grant it reports them as not known.
GRANT SELECT ON system.parts TO milepost_writer;
-- On replicas, `milepost run` counts them for the quorum of its inserts, and `milepost check` reads their state.
GRANT SELECT ON system.replicas TO milepost_writer;
-- With clickhouse.cluster, for `milepost check`: GRANT REMOTE ON *.* TO milepost_writer; GRANT SELECT ON system.clusters TO milepost_writer;
-- With clickhouse.shards also: GRANT INSERT ON fleet.positions_all TO milepost_writer; GRANT INSERT ON fleet.rejects_all TO milepost_writer;

CREATE ROLE IF NOT EXISTS milepost_migrator;
-- For `milepost migrate`: creates and alters the tables. It may drop four views, to replace them by newer ones.
GRANT CREATE DATABASE, CREATE TABLE, CREATE VIEW, ALTER, SELECT, INSERT ON fleet.* TO milepost_migrator;
GRANT DROP VIEW ON fleet.fixes TO milepost_migrator;
GRANT DROP VIEW ON fleet.last_positions TO milepost_migrator;
GRANT DROP VIEW ON fleet.rollups TO milepost_migrator;
GRANT DROP VIEW ON fleet.touched_mv TO milepost_migrator;
-- `milepost import` reads system.parts, to wait while a partition has many parts. The view touched_mv reads system.parts and
-- system.tables, to find new parts, and driver_days_mv reads the TTL of positions in system.tables.
GRANT SELECT ON system.parts TO milepost_migrator;
GRANT SELECT ON system.tables TO milepost_migrator;
-- With replicas: `milepost import` counts them, as the writer does.
GRANT SELECT ON system.replicas TO milepost_migrator;
-- The database fleet_ask contains only views, and a migration may replace any of them.
GRANT CREATE DATABASE, CREATE VIEW, DROP VIEW, SELECT ON fleet_ask.* TO milepost_migrator;

CREATE ROLE IF NOT EXISTS milepost_eraser;
-- For `milepost erase`: counts a driver's rows, hides them and removes them. It cannot read positions or their times. It also erases
-- from your own tables that have a column driver_id, if this role has the same grants on them. A DELETE hides a row by changing its
-- _row_exists, so ClickHouse requires ALTER UPDATE as well.
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.positions TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.last_positions_state TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.touched TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.driver_days_state TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.rejects TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.events TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.event_states TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.recent_events TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.drivers TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.alerts_seen TO milepost_eraser;
GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.trip_rules TO milepost_eraser;
-- Names the fences for individual drivers that name the driver.
GRANT SELECT(name, valid_from, drivers) ON fleet.fences TO milepost_eraser;
GRANT SELECT, INSERT ON fleet.erased TO milepost_eraser;
GRANT SELECT ON fleet.schema_migrations TO milepost_eraser;
GRANT SELECT ON system.parts TO milepost_eraser;
GRANT SELECT ON system.mutations TO milepost_eraser;
GRANT SELECT ON system.view_refreshes TO milepost_eraser;
GRANT SELECT ON system.processes TO milepost_eraser;
-- With clickhouse.cluster or "managed" also: GRANT CLUSTER, REMOTE ON *.* TO milepost_eraser; GRANT SELECT ON system.clusters TO milepost_eraser;

CREATE ROLE IF NOT EXISTS milepost_watcher;
-- For `milepost events`: reads new fixes, fences and the list of erased drivers, and writes events. The view last_positions runs
-- with the caller's rights, so its table last_positions_state is granted, too.
GRANT SELECT ON fleet.positions TO milepost_watcher;
GRANT SELECT ON fleet.last_positions TO milepost_watcher;
GRANT SELECT ON fleet.last_positions_state TO milepost_watcher;
GRANT SELECT ON fleet.fences TO milepost_watcher;
GRANT SELECT ON fleet.erased TO milepost_watcher;
GRANT SELECT ON fleet.schema_migrations TO milepost_watcher;
GRANT SELECT, INSERT ON fleet.events TO milepost_watcher;
GRANT SELECT ON fleet.event_states TO milepost_watcher;
GRANT SELECT ON fleet.recent_events TO milepost_watcher;
-- The delay of the replica that `milepost events` reads from.
GRANT SELECT ON system.replicas TO milepost_watcher;
-- With clickhouse.shards, also grant SELECT on fleet.positions_all and fleet.last_positions_state_all.

CREATE ROLE IF NOT EXISTS milepost_reader;
GRANT SELECT ON fleet.* TO milepost_reader;
-- The views of fleet_ask run with the caller's rights, so a reader needs the grant on fleet as well.
GRANT SELECT ON fleet_ask.* TO milepost_reader;

CREATE ROLE IF NOT EXISTS milepost_fencer;
-- For the user in the live map's `fences.user`: reads and writes fences. It cannot read positions.
GRANT SELECT, INSERT ON fleet.fences TO milepost_fencer;
-- The live map also writes drivers' names and acknowledgements of alerts. This role cannot read them.
GRANT INSERT ON fleet.drivers TO milepost_fencer;
GRANT INSERT ON fleet.alerts_seen TO milepost_fencer;

-- An insert of 5,000 rows takes about 20 MB and 50 ms, so an insert that reaches these limits is a mistake. CONST keeps clients from
-- switching off deduplication, by which ClickHouse recognises a retried insert.
CREATE SETTINGS PROFILE IF NOT EXISTS milepost_writer SETTINGS
    insert_deduplicate = 1 CONST,
    max_memory_usage = 2000000000,
    max_execution_time = 600,
    max_partitions_per_insert_block = 100;

-- An analyst's mistake must not stop the inserts. readonly = 2 lets users change settings: MAX keeps them from raising a limit, and
-- MIN 1 from setting it to 0, which means no limit.
CREATE SETTINGS PROFILE IF NOT EXISTS milepost_reader SETTINGS
    readonly = 2,
    max_memory_usage = 8000000000 MIN 1 MAX 8000000000,
    max_execution_time = 120 MIN 1 MAX 120,
    max_rows_to_read = 20000000000 MIN 1 MAX 20000000000,
    priority = 10 CONST;

-- Only readers have a quota, each user a separate one: a writer's refused inserts would pile up. A live map with an open page
-- sends up to 4,700 queries an hour. So execution_time is the limit that matters, and queries only stops a program out of control.
CREATE QUOTA IF NOT EXISTS milepost_readers KEYED BY user_name TO milepost_reader;
ALTER QUOTA milepost_readers FOR INTERVAL 1 HOUR MAX queries = 100000, execution_time = 3600;

-- HOST IP is the network of the milepost hosts: put yours here and below. The users need a DEFAULT ROLE, because milepost sends no
-- role with its requests.
CREATE USER IF NOT EXISTS milepost IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_MILEPOST'
    HOST IP '10.0.0.0/8' DEFAULT ROLE milepost_writer SETTINGS PROFILE 'milepost_writer';
GRANT milepost_writer TO milepost;

-- Used by `milepost migrate`, so only during a release. Between releases you can close this login; setting a new password can reopen it:
--     ALTER USER migrate VALID UNTIL '2020-01-01';        and before the next release:
--     ALTER USER migrate VALID UNTIL 'infinity';
-- Never drop this user: the materialized views run with its rights, and without it every insert fails.
CREATE USER IF NOT EXISTS migrate IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_MIGRATE'
    HOST IP '10.0.0.0/8' DEFAULT ROLE milepost_migrator;
GRANT milepost_migrator TO migrate;

-- Used by `milepost erase`.
CREATE USER IF NOT EXISTS eraser IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_ERASER'
    HOST IP '10.0.0.0/8' DEFAULT ROLE milepost_eraser;
GRANT milepost_eraser TO eraser;

-- Used by the live map, as `fences.user`, if people may edit fences there.
CREATE USER IF NOT EXISTS fencer IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_FENCER'
    HOST IP '10.0.0.0/8' DEFAULT ROLE milepost_fencer;
GRANT milepost_fencer TO fencer;

-- Used by `milepost events`.
CREATE USER IF NOT EXISTS watcher IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_WATCHER'
    HOST IP '10.0.0.0/8' DEFAULT ROLE milepost_watcher;
GRANT milepost_watcher TO watcher;

CREATE USER IF NOT EXISTS reader IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_READER'
    HOST IP '10.0.0.0/8' DEFAULT ROLE milepost_reader SETTINGS PROFILE 'milepost_reader';
GRANT milepost_reader TO reader;

-- CREATE USER IF NOT EXISTS leaves an existing user as it is. With these statements a second run with other hashes changes the passwords.
ALTER USER milepost IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_MILEPOST';
ALTER USER migrate IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_MIGRATE';
ALTER USER eraser IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_ERASER';
ALTER USER fencer IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_FENCER';
ALTER USER watcher IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_WATCHER';
ALTER USER reader IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_READER';
