-- Rules of a fence, which `milepost events` applies (docs/events.md). NULL, or an empty list of drivers: the fence has no such rule.
ALTER TABLE {database}.fences{on_cluster}
    ADD COLUMN IF NOT EXISTS speed_limit_kmh Nullable(Float64) COMMENT 'Speed limit inside, km/h; above it a driver is fast. NULL: none',
    ADD COLUMN IF NOT EXISTS stay_max_s      Nullable(UInt32)  COMMENT 'Longest stay inside, seconds; a driver who stays longer has overstayed. NULL: no limit',
    ADD COLUMN IF NOT EXISTS silent_for_s    Nullable(UInt32)  COMMENT 'Seconds without a fix after which a driver inside counts as silent; 0: never. NULL: events.silent_for applies, as outside the fence',
    ADD COLUMN IF NOT EXISTS hours           Nullable(String)  COMMENT 'Opening hours, such as Mo-Fr 06:00-18:00, Sa 08:00-12:00: crossing the border at other times is off_hours. NULL: always open',
    ADD COLUMN IF NOT EXISTS hours_zone      Nullable(String)  COMMENT 'Time zone of hours, such as Europe/Berlin. NULL: UTC',
    ADD COLUMN IF NOT EXISTS drivers         Array(String)     COMMENT 'Driver ids that the fence is for: other drivers cause no events. Empty: all drivers'
