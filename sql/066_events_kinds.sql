-- The kinds that the rules of fences (065) add.
ALTER TABLE {database}.events{on_cluster}
    MODIFY COLUMN kind COMMENT 'entered, overstayed, left, off_hours, silent, heard, fast, slow or jump',
    MODIFY COLUMN fence COMMENT 'Fence of entered, overstayed, left and off_hours, and of fast and slow by a fence''s limit; else empty',
    MODIFY COLUMN ts COMMENT 'Time of the fix: the first inside or outside (of overstayed and off_hours, too), the first that is fast or slow, the last before a silence, the one that jumped'
