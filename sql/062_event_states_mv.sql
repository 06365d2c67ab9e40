-- Feeds event_states with every insert into events. jump and off_hours are left out: they change no state.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.event_states_mv{on_cluster} TO {database}.event_states AS
SELECT
    driver_id,
    multiIf(kind IN ('entered', 'overstayed', 'left'), 'fence', kind IN ('silent', 'heard'), 'contact', 'speed') AS state,
    fence, kind, ts, seq, lat, lng, speed, known_at, mqtt_at, webhook_at, written_at
FROM {database}.events
WHERE kind NOT IN ('jump', 'off_hours')
