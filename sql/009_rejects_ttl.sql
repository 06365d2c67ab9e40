-- See 008. Parts that are there already are not written again for it.
ALTER TABLE {database}.rejects
    MODIFY TTL toDateTime(inserted_at) + INTERVAL 30 DAY
    SETTINGS materialize_ttl_after_modify = 0
