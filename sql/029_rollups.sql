-- How far behind the roll-ups are.
CREATE VIEW IF NOT EXISTS {database}.rollups
(
    name           String              COMMENT 'Of the roll-up',
    inserted_until DateTime64(3, 'UTC') COMMENT 'All fixes that were inserted until then are in it',
    pending        UInt64              COMMENT 'Fixes inserted since',
    behind_s       Float64             COMMENT 'Age of the oldest of them in seconds, 0 if there is none'
)
AS WITH (SELECT max(inserted_until) FROM {database}.driver_quarters_state) AS done_until
SELECT
    'driver_quarters' AS name, done_until AS inserted_until, count() AS pending,
    if(pending = 0, 0, (toUnixTimestamp64Milli(now64(3)) - toUnixTimestamp64Milli(min(inserted_at))) / 1000) AS behind_s
FROM {database}.positions
WHERE inserted_at > done_until
COMMENT 'How far behind the roll-ups are. system.view_refreshes says why'
