-- Every fix of a time, as Parquet, for pandas, DuckDB, Spark.
SELECT driver_id, ts, seq, lat, lng, speed, heading, alt, acc
FROM fleet.fixes
WHERE ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String}) AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
ORDER BY driver_id, ts, seq
FORMAT Parquet
