-- How far behind each of the roll-ups is, now that there are three.
CREATE OR REPLACE VIEW {database}.rollups
(
    name           String              COMMENT 'Of the roll-up',
    inserted_until DateTime64(3, 'UTC') COMMENT 'All fixes that were inserted until then are in it',
    pending        UInt64              COMMENT 'Fixes inserted since',
    behind_s       Float64             COMMENT 'Age of the oldest of them in seconds, 0 if there is none'
)
AS WITH
    (SELECT max(inserted_until) FROM {database}.driver_quarters_state) AS quarters_until,
    (SELECT max(inserted_until) FROM {database}.episodes_state) AS episodes_until,
    (SELECT max(inserted_until) FROM {database}.cell_quarters_state) AS cells_until
SELECT
    roll_up.1 AS name, roll_up.2 AS inserted_until, roll_up.3 AS pending,
    if(pending = 0, 0, (toUnixTimestamp64Milli(now64(3)) - toUnixTimestamp64Milli(roll_up.4)) / 1000) AS behind_s
FROM
(
    SELECT arrayJoin([
        ('driver_quarters', quarters_until, countIf(inserted_at > quarters_until), minIf(inserted_at, inserted_at > quarters_until)),
        ('trips and stops', episodes_until, countIf(inserted_at > episodes_until), minIf(inserted_at, inserted_at > episodes_until)),
        ('cell_quarters', cells_until, countIf(inserted_at > cells_until), minIf(inserted_at, inserted_at > cells_until))]) AS roll_up
    FROM {database}.positions
    WHERE inserted_at > least(quarters_until, episodes_until, cells_until)
)
COMMENT 'How far behind the roll-ups are. system.view_refreshes says why'
