-- Who may do what, for a server of your own (docker-compose.yml has users.xml instead). Run by an administrator with
-- access_management, after replacing each hash: printf %s "$PASSWORD" | sha256sum. Repeatable; grants are to the
-- databases fleet, milepost's default, and fleet_ask, its parameterised views.

-- Roles hold the grants, users only log in: a second milepost cluster is one CREATE USER.
CREATE ROLE IF NOT EXISTS milepost_writer;
-- Writes, and reads which migrations are there. It cannot read a driver's track.
GRANT INSERT ON fleet.positions TO milepost_writer;
GRANT INSERT ON fleet.rejects TO milepost_writer;
GRANT SELECT ON fleet.schema_migrations TO milepost_writer;
-- And who is erased: nothing of them is inserted.
GRANT SELECT ON fleet.erased TO milepost_writer;
-- For `milepost check`: the defaults of deduplication and fsync.
GRANT SELECT ON system.merge_tree_settings TO milepost_writer;
-- And how many inserts a second the server gets. Without it `milepost check` reports them as not known.
GRANT SELECT ON system.parts TO milepost_writer;

CREATE ROLE IF NOT EXISTS milepost_migrator;
-- Makes and changes the tables. Drops four views, to replace them by newer ones.
GRANT CREATE DATABASE, CREATE TABLE, CREATE VIEW, ALTER, SELECT, INSERT ON fleet.* TO milepost_migrator;
GRANT DROP VIEW ON fleet.fixes TO milepost_migrator;
GRANT DROP VIEW ON fleet.last_positions TO milepost_migrator;
GRANT DROP VIEW ON fleet.rollups TO milepost_migrator;
GRANT DROP VIEW ON fleet.touched_mv TO milepost_migrator;
-- `milepost import` reads system.parts to wait while a partition has many parts; touched_mv reads both to find new parts.
GRANT SELECT ON system.parts TO milepost_migrator;
GRANT SELECT ON system.tables TO milepost_migrator;
-- The database of the parameterised views has nothing but views: each of them may be replaced.
GRANT CREATE DATABASE, CREATE VIEW, DROP VIEW, SELECT ON fleet_ask.* TO milepost_migrator;

CREATE ROLE IF NOT EXISTS milepost_eraser;
-- `milepost erase`: counts by driver, hides and removes rows. It sees no place and no time of anybody. Tables of your own
-- with a column driver_id are erased from, too, if it sees them. A DELETE hides a row by its _row_exists, which is an update to the server.
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
GRANT SELECT, INSERT ON fleet.erased TO milepost_eraser;
GRANT SELECT ON fleet.schema_migrations TO milepost_eraser;
GRANT SELECT ON system.parts TO milepost_eraser;
GRANT SELECT ON system.mutations TO milepost_eraser;
GRANT SELECT ON system.view_refreshes TO milepost_eraser;
GRANT SELECT ON system.processes TO milepost_eraser;
-- With clickhouse.cluster or "managed" also: GRANT CLUSTER, REMOTE ON *.* TO milepost_eraser; GRANT SELECT ON system.clusters TO milepost_eraser;

CREATE ROLE IF NOT EXISTS milepost_watcher;
-- `milepost events`: reads new fixes, fences and who is erased, and writes events. The view runs with the rights of who asks.
GRANT SELECT ON fleet.positions TO milepost_watcher;
GRANT SELECT ON fleet.last_positions TO milepost_watcher;
GRANT SELECT ON fleet.last_positions_state TO milepost_watcher;
GRANT SELECT ON fleet.fences TO milepost_watcher;
GRANT SELECT ON fleet.erased TO milepost_watcher;
GRANT SELECT ON fleet.schema_migrations TO milepost_watcher;
GRANT SELECT, INSERT ON fleet.events TO milepost_watcher;
GRANT SELECT ON fleet.event_states TO milepost_watcher;
GRANT SELECT ON fleet.recent_events TO milepost_watcher;
-- And how far its replica is behind.
GRANT SELECT ON system.replicas TO milepost_watcher;
-- With clickhouse.shards also: SELECT on fleet.positions_all and fleet.last_positions_state_all.

CREATE ROLE IF NOT EXISTS milepost_reader;
GRANT SELECT ON fleet.* TO milepost_reader;
-- Views run with the rights of who asks: fleet_ask alone is not enough.
GRANT SELECT ON fleet_ask.* TO milepost_reader;

CREATE ROLE IF NOT EXISTS milepost_fencer;
-- The live map's `fences.user`: fences alone, no place of anybody.
GRANT SELECT, INSERT ON fleet.fences TO milepost_fencer;
-- And names of drivers and acknowledgements of alerts, which it writes and cannot read.
GRANT INSERT ON fleet.drivers TO milepost_fencer;
GRANT INSERT ON fleet.alerts_seen TO milepost_fencer;

-- An insert of 5,000 rows needs some 20 MB and 50 ms: what needs more is a mistake. A retried insert must be recognised,
-- whatever a client asks for.
CREATE SETTINGS PROFILE IF NOT EXISTS milepost_writer SETTINGS
    insert_deduplicate = 1 CONST,
    max_memory_usage = 2000000000,
    max_execution_time = 600,
    max_partitions_per_insert_block = 100;

-- An analyst's mistake must not stop the inserts. readonly = 2 lets a user change settings: MAX keeps them from lifting a limit, and
-- MIN from switching it off, because 0 is no limit.
CREATE SETTINGS PROFILE IF NOT EXISTS milepost_reader SETTINGS
    readonly = 2,
    max_memory_usage = 8000000000 MIN 1 MAX 8000000000,
    max_execution_time = 120 MIN 1 MAX 120,
    max_rows_to_read = 20000000000 MIN 1 MAX 20000000000,
    priority = 10 CONST;

-- Analysts share what is left over; writers have no quota, because a refused insert is a backlog. A live map that somebody looks at
-- asks 3,600 times an hour: time is what bounds a reader, the number only what runs wild.
CREATE QUOTA IF NOT EXISTS milepost_readers KEYED BY user_name TO milepost_reader;
ALTER QUOTA milepost_readers FOR INTERVAL 1 HOUR MAX queries = 100000, execution_time = 3600;

-- From the network of the milepost hosts alone. A DEFAULT ROLE, because milepost sends none with its inserts.
CREATE USER IF NOT EXISTS milepost IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_MILEPOST'
    HOST IP '10.0.0.0/8' DEFAULT ROLE milepost_writer SETTINGS PROFILE 'milepost_writer';
GRANT milepost_writer TO milepost;

-- Used for the length of a release. In between nobody need log in with it; a new password may open it again:
--     ALTER USER migrate VALID UNTIL '2020-01-01';        and before the next release:
--     ALTER USER migrate VALID UNTIL 'infinity';
-- Never drop it: the materialized view runs with its rights, and without it every insert fails.
CREATE USER IF NOT EXISTS migrate IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_MIGRATE'
    HOST IP '10.0.0.0/8' DEFAULT ROLE milepost_migrator;
GRANT milepost_migrator TO migrate;

-- Used when somebody is to be erased.
CREATE USER IF NOT EXISTS eraser IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_ERASER'
    HOST IP '10.0.0.0/8' DEFAULT ROLE milepost_eraser;
GRANT milepost_eraser TO eraser;

-- Used by the live map if people may edit fences there.
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

-- What is there already was left as it is. So a run with other hashes sets other passwords:
ALTER USER milepost IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_MILEPOST';
ALTER USER migrate IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_MIGRATE';
ALTER USER eraser IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_ERASER';
ALTER USER fencer IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_FENCER';
ALTER USER watcher IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_WATCHER';
ALTER USER reader IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_READER';
