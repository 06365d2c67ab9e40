-- Who is in a box now, by the last position. west above east is a box across the antimeridian. First the drivers who have a row in
-- the box, which needs no merge, then the newest of all rows of these.
CREATE OR REPLACE VIEW {database}_ask.in_box AS
SELECT
    driver_id, tupleElement(newest, 'ts') AS ts,
    tupleElement(newest, 'lat_e7') / 1e7 AS lat, tupleElement(newest, 'lng_e7') / 1e7 AS lng,
    CAST(if(tupleElement(newest, 'speed_cms') = 65535, NULL, tupleElement(newest, 'speed_cms') / 100) AS Nullable(Float32)) AS speed,
    CAST(if(tupleElement(newest, 'heading_cdeg') = 65535, NULL, tupleElement(newest, 'heading_cdeg') / 100) AS Nullable(Float32)) AS heading,
    CAST(if(tupleElement(newest, 'alt_dm') = 2147483647, NULL, tupleElement(newest, 'alt_dm') / 10) AS Nullable(Float32)) AS alt,
    CAST(if(tupleElement(newest, 'acc_dm') = 65535, NULL, tupleElement(newest, 'acc_dm') / 10) AS Nullable(Float32)) AS acc,
    tupleElement(newest, 'received_at') AS received_at
FROM
(
    SELECT driver_id, max(last) AS newest
    FROM {database}.last_positions_state
    WHERE driver_id IN
    (
        SELECT driver_id
        FROM {database}.last_positions_state
        WHERE tupleElement(last, 'lat_e7') / 1e7 BETWEEN {south:Float64} AND {north:Float64}
            AND if({west:Float64} <= {east:Float64},
                tupleElement(last, 'lng_e7') / 1e7 BETWEEN {west:Float64} AND {east:Float64},
                tupleElement(last, 'lng_e7') / 1e7 >= {west:Float64} OR tupleElement(last, 'lng_e7') / 1e7 <= {east:Float64})
    )
    GROUP BY driver_id
)
WHERE lat BETWEEN {south:Float64} AND {north:Float64}
    AND if({west:Float64} <= {east:Float64}, lng BETWEEN {west:Float64} AND {east:Float64}, lng >= {west:Float64} OR lng <= {east:Float64})
COMMENT 'in_box(south, west, north, east)'
