-- When ClickHouse took a refusal: the time-to-live counts from here. A milepost whose clock was a month behind would
-- otherwise write rows that are gone at once.
ALTER TABLE {database}.rejects
    ADD COLUMN IF NOT EXISTS inserted_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(DoubleDelta, ZSTD(1)) COMMENT 'When ClickHouse took the row'
