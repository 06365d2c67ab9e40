-- An index of the highest known speed of each granule of positions, so that fleet_ask.speeding skips granules without a fast fix. % 65535 turns
-- an unknown speed into 0. The second statement adds the index to existing parts in the background: until a part has it, speeding cannot
-- skip granules of that part.
ALTER TABLE {database}.positions{on_cluster}
    ADD INDEX IF NOT EXISTS speed_range speed_cms % 65535 TYPE minmax GRANULARITY 1;
ALTER TABLE {database}.positions{on_cluster}
    MATERIALIZE INDEX speed_range
