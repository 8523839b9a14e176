-- How long until the next parked run is due, in ms.
SELECT (extract(epoch FROM min(wake_at) - clock_timestamp()) * 1000)::bigint AS in_ms
FROM (SELECT wake_at FROM forebay.workflow_execution WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1) next
