-- Who is in a box now, by the last position. west above east is a box across the antimeridian, which is 180 as well as -180. First the
-- drivers who have a row in the box, which needs no merge, then the newest of all rows of these.
CREATE VIEW IF NOT EXISTS {database}_ask.in_box{on_cluster} AS
SELECT {shown_names}
FROM {database}.last_positions_state{all} FINAL
WHERE driver_id IN
    (
        SELECT driver_id
        FROM {database}.last_positions_state
        WHERE lat BETWEEN {south:Float64} AND {north:Float64}
            AND if({west:Float64} <= {east:Float64},
                lng BETWEEN {west:Float64} AND {east:Float64} OR abs(lng) = 180 AND ({west:Float64} = -180 OR {east:Float64} = 180),
                lng >= {west:Float64} OR lng <= {east:Float64})
    )
    AND lat BETWEEN {south:Float64} AND {north:Float64}
    AND if({west:Float64} <= {east:Float64},
        lng BETWEEN {west:Float64} AND {east:Float64} OR abs(lng) = 180 AND ({west:Float64} = -180 OR {east:Float64} = 180),
        lng >= {west:Float64} OR lng <= {east:Float64})
SETTINGS optimize_move_to_prewhere_if_final = 1
COMMENT 'in_box(south, west, north, east)'
