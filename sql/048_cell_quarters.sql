-- What people and BI tools read. h3ToGeo has had both orders, too.
CREATE VIEW IF NOT EXISTS {database}.cell_quarters
(
    quarter     DateTime('UTC')      COMMENT 'When the quarter of an hour begins',
    cell        UInt64               COMMENT 'H3, resolution 8: about a kilometre wide',
    cell_lat    Float64              COMMENT 'Its middle: WGS84 degrees north',
    cell_lng    Float64              COMMENT 'Degrees east',
    driver_id   String               COMMENT 'Who',
    fixes       UInt32               COMMENT 'Fixes there and then',
    computed_at DateTime64(3, 'UTC') COMMENT 'When this row was counted'
)
AS WITH h3ToGeo(614859418697203711) AS known
SELECT
    quarter, cell,
    if(known.2 > known.1, h3ToGeo(cell).1, h3ToGeo(cell).2) AS cell_lat, if(known.2 > known.1, h3ToGeo(cell).2, h3ToGeo(cell).1) AS cell_lng,
    driver_id, fixes, computed_at
FROM {database}.cell_quarters_state FINAL
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'Who was in which cell in which quarter of an hour. Counted every hour, and rollups says how far'
