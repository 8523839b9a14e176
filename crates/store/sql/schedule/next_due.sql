-- How many seconds until the next tick; negative if one is due, null if there is none.
SELECT extract(epoch FROM min(greatest(schedule.next_at, schedule.retry_at)) - clock_timestamp())::float8 AS seconds
FROM forebay.schedule WHERE schedule.status = 'ACTIVE'
