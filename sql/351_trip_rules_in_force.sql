-- The limits with which days are computed: the values in `trip_rules`, or those of the preset where a value is NULL. Only this file defines
-- the presets and the version of the definition.
CREATE VIEW IF NOT EXISTS {database}.trip_rules_in_force{on_cluster}
(
    driver_id String  COMMENT 'Driver id; empty for all drivers without a row of their own',
    preset    String  COMMENT 'Kind of vehicle',
    speed_max Float64 COMMENT 'Highest possible speed of the vehicle, metres per second',
    radius_m  Float64 COMMENT 'Radius of a stop, metres: a driver who stays within it has not left the stop',
    stop_s    Float64 COMMENT 'Shortest duration of a stop, seconds',
    trip_m    Float64 COMMENT 'Largest distance, metres, between two stays of stop_s or longer that count as one stop. Also the largest distance between the start and the end of a silence that counts as parking',
    trip_s    Float64 COMMENT 'Longest absence, seconds, between two stays that count as one stop, if at least one of them lasts for stop_s',
    spike_s   Float64 COMMENT 'Longest absence, seconds, between two stays that count as one stop, if both are shorter than stop_s',
    acc_max   Float64 COMMENT 'Accuracy limit, metres: a fix with a larger acc is dropped',
    rule      Tuple(UInt64, Float64, Float64, Float64, Float64, Float64, Float64, Float64)
                      COMMENT 'Hash of the limits and of the version of the definition, then the seven limits'
)
AS
WITH
    7 AS definition, -- version of the definition: raise it with every change to sql/360 that changes results, so that older days are computed again
    arrayFirst(limits -> limits.1 = kind, [
        --         speed_max radius_m stop_s trip_m trip_s spike_s acc_max
        ('car',     60.,      100.,    180.,  200.,  300.,  60.,    200.),
        ('truck',   40.,      150.,    300.,  300.,  300.,  60.,    200.),
        ('bicycle', 25.,       80.,    180.,  150.,  300.,  60.,    200.),
        ('walker',  12.,       60.,    180.,  120.,  300.,  60.,    200.),
        ('rail',   120.,      200.,    120.,  400.,  300.,  60.,    200.)]) AS preset_limits
SELECT
    driver_id, toString(kind) AS preset,
    coalesce(given.1, preset_limits.2) AS speed_max, coalesce(given.2, preset_limits.3) AS radius_m, coalesce(given.3, preset_limits.4) AS stop_s, coalesce(given.4, preset_limits.5) AS trip_m,
    coalesce(given.5, preset_limits.6) AS trip_s, coalesce(given.6, preset_limits.7) AS spike_s, coalesce(given.7, preset_limits.8) AS acc_max,
    (cityHash64(definition, speed_max, radius_m, stop_s, trip_m, trip_s, spike_s, acc_max), speed_max, radius_m, stop_s, trip_m, trip_s, spike_s, acc_max) AS rule
FROM
(
    SELECT driver_id, toString(rules.preset) AS kind, (rules.speed_max, rules.radius_m, rules.stop_s, rules.trip_m, rules.trip_s, rules.spike_s, rules.acc_max) AS given
    FROM {database}.trip_rules AS rules FINAL
    WHERE rules.preset != ''
    UNION ALL
    SELECT '', 'car', (NULL, NULL, NULL, NULL, NULL, NULL, NULL) WHERE (SELECT count() FROM {database}.trip_rules FINAL WHERE driver_id = '' AND trip_rules.preset != '') = 0
)
COMMENT 'Limits of trips and stops in force: one row for all drivers, and one for each driver with limits of its own'
