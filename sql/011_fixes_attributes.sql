-- The same view, with attributes.
CREATE OR REPLACE VIEW {database}.fixes AS
SELECT driver_id, ts, seq, lat, lng, speed, heading, alt, acc, received_at, inserted_at, attributes
FROM {database}.positions FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1
