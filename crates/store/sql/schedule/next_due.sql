-- How many seconds until the next tick; negative if one is due, null if there is none.
SELECT extract(epoch FROM min(greatest(s.next_at, s.retry_at)) - clock_timestamp())::float8 AS seconds
FROM forebay.schedule s WHERE s.status = 'ACTIVE'
