-- Removes the deduplication window from the tables that operators edit with INSERT. An operator may set a value back to an earlier one: with
-- a window, ClickHouse would silently drop such an INSERT as a repetition, because it does not compare the default value of written_at.
-- Without a window, a retried insert of `milepost fences import` can store a row twice, which does no harm.
ALTER TABLE {database}.fences{on_cluster} MODIFY SETTING {no_tokens};

ALTER TABLE {database}.drivers{on_cluster} MODIFY SETTING {no_tokens};

ALTER TABLE {database}.trip_rules{on_cluster} MODIFY SETTING {no_tokens};

-- A limit outside these ranges would make the roll-up of the whole fleet fail, or find no stops.
ALTER TABLE {database}.trip_rules{on_cluster}
    ADD CONSTRAINT IF NOT EXISTS limits CHECK
        (speed_max IS NULL OR speed_max BETWEEN 0.5 AND 400) AND (radius_m IS NULL OR radius_m BETWEEN 1 AND 10000)
        AND (stop_s IS NULL OR stop_s BETWEEN 45 AND 86400) AND (trip_m IS NULL OR trip_m BETWEEN 0 AND 100000)
        AND (trip_s IS NULL OR trip_s BETWEEN 0 AND 86400) AND (spike_s IS NULL OR spike_s BETWEEN 0 AND 3600)
        AND (acc_max IS NULL OR acc_max BETWEEN 1 AND 100000)
