-- last_positions_mv passes on the newest fix of each driver in an insert, by the order of the version column (sql/020). milepost inserts with
-- optimize_on_insert = 0, because the server would otherwise merge the rows of each insert one by one. For rows with attributes, that merge
-- costs as much as storing them. Without this view's LIMIT BY, each insert would then add all its rows to last_positions_state.
ALTER TABLE {database}.last_positions_mv{on_cluster}
MODIFY QUERY
SELECT * FROM {database}.positions
ORDER BY
    ts DESC, seq DESC, lat_e7 DESC, lng_e7 DESC, received_at DESC,
    cityHash64(speed_cms, heading_cdeg, alt_dm, acc_dm, attributes) DESC
LIMIT 1 BY driver_id
