-- Where everybody is: one row a driver, in plain units. Hides the merge.
CREATE VIEW IF NOT EXISTS {database}.last_positions AS
SELECT
    driver_id,
    newest.ts AS ts,
    newest.lat_e7 / 1e7 AS lat,
    newest.lng_e7 / 1e7 AS lng,
    CAST(if(newest.speed_cms = 65535, NULL, newest.speed_cms / 100) AS Nullable(Float32)) AS speed,
    CAST(if(newest.heading_cdeg = 65535, NULL, newest.heading_cdeg / 100) AS Nullable(Float32)) AS heading,
    CAST(if(newest.alt_dm = 2147483647, NULL, newest.alt_dm / 10) AS Nullable(Float32)) AS alt,
    CAST(if(newest.acc_dm = 65535, NULL, newest.acc_dm / 10) AS Nullable(Float32)) AS acc,
    newest.received_at AS received_at
FROM
(
    SELECT driver_id, max(last) AS newest
    FROM {database}.last_positions_state
    GROUP BY driver_id
)
