-- Runs of an external engine that were flagged to wake at least $2 s ago and have not read their waits since. The
-- caller notifies the engine again. A run that was flagged more than a minute ago is returned only once per minute,
-- because each notification adds to the engine's history.
SELECT request.execution_id AS id
FROM forebay.run_request request
WHERE request.engine = $1::text
  AND request.wake_at <= statement_timestamp() - make_interval(secs => $2::float8)
  AND (request.wake_at > statement_timestamp() - interval '1 minute'
       OR extract(epoch FROM statement_timestamp() - request.wake_at)::bigint % 60 = 0)
  AND request.owner IS NOT NULL
  AND NOT request.ends
ORDER BY request.wake_at
LIMIT $3::bigint
