-- Every fix of drivers as CSV, with the fields of the operator (docs/fields.md) as columns. `milepost import` reads the file: list in --keep
-- the columns that it should keep as attributes. To leave out a column of `fixes`, add it to EXCEPT.
SELECT * EXCEPT (received_at, inserted_at, attributes)
FROM fleet.fixes
WHERE ({driver:String} = '' OR has(splitByChar(',', {driver:String}), driver_id))
    AND ts >= parseDateTime64BestEffort({from:String}, 3, {tz:String})
    AND ts < parseDateTime64BestEffort({to:String}, 3, {tz:String})
ORDER BY driver_id, ts, seq
SETTINGS date_time_output_format = 'iso', format_csv_null_representation = ''
FORMAT CSVWithNames
