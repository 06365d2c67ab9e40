-- Plain compression for last_positions_state: the table holds few rows per driver, and codecs make every insert slower (docs/scale.md).
-- Existing parts keep their codecs until they merge.
ALTER TABLE {database}.last_positions_state{on_cluster}
    MODIFY COLUMN version CODEC(Default),
    MODIFY COLUMN driver_id CODEC(Default),
    MODIFY COLUMN ts CODEC(Default),
    MODIFY COLUMN seq CODEC(Default),
    MODIFY COLUMN lat_e7 CODEC(Default),
    MODIFY COLUMN lng_e7 CODEC(Default),
    MODIFY COLUMN speed_cms CODEC(Default),
    MODIFY COLUMN heading_cdeg CODEC(Default),
    MODIFY COLUMN alt_dm CODEC(Default),
    MODIFY COLUMN acc_dm CODEC(Default),
    MODIFY COLUMN received_at CODEC(Default),
    MODIFY COLUMN inserted_at CODEC(Default),
    MODIFY COLUMN attributes CODEC(Default)
