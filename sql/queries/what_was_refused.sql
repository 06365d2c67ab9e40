-- Why input was refused in the last day, most frequent first, with an example each.
SELECT reason, sum(count) AS refused, uniq(driver_id) AS drivers, any(detail) AS example, max(received_at) AS latest
FROM fleet.rejects
WHERE received_at > now64(3) - INTERVAL 1 DAY
GROUP BY reason
ORDER BY refused DESC
