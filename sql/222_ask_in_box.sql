-- The drivers whose last position is in a box. If west is above east, the box crosses 180 degrees. A longitude of 180 is also -180. The subquery
-- needs no merge: it finds the drivers who have any row in the box, their newest or an older one. The outer query merges the rows of these
-- drivers only, and tests the newest row of each.
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
