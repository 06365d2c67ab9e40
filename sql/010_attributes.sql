-- Other fields of a fix that a source keeps (`keep`): names and values as they were sent, as text. Not part of its identity.
ALTER TABLE {database}.positions
    ADD COLUMN IF NOT EXISTS attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)) COMMENT 'What the source keeps of other fields'
