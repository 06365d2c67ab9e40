-- Who is in a box now, by the last position. west above east is a box across the antimeridian. Drivers who never sent a fix from there
-- are left out first, by rows that need no merge.
CREATE OR REPLACE VIEW {database}_ask.in_box AS
SELECT *
FROM {database}.last_positions
WHERE driver_id IN
    (
        SELECT driver_id
        FROM {database}.last_positions_state
        WHERE tupleElement(last, 'lat_e7') BETWEEN {south:Float64} * 1e7 - 1 AND {north:Float64} * 1e7 + 1
            AND if({west:Float64} <= {east:Float64},
                tupleElement(last, 'lng_e7') BETWEEN {west:Float64} * 1e7 - 1 AND {east:Float64} * 1e7 + 1,
                tupleElement(last, 'lng_e7') >= {west:Float64} * 1e7 - 1 OR tupleElement(last, 'lng_e7') <= {east:Float64} * 1e7 + 1)
    )
    AND lat BETWEEN {south:Float64} AND {north:Float64}
    AND if({west:Float64} <= {east:Float64}, lng BETWEEN {west:Float64} AND {east:Float64}, lng >= {west:Float64} OR lng <= {east:Float64})
COMMENT 'in_box(south, west, north, east)'
