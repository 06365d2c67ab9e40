-- Feeds recent_events with every insert into events.
CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.recent_events_mv{on_cluster} TO {database}.recent_events AS
SELECT known_at, driver_id, ts, seq, kind, fence, lat, lng, speed, mqtt_at, webhook_at, written_at
FROM {database}.events
