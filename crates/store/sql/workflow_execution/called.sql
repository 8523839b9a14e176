-- Runs of an engine elsewhere that something came for $2 s ago or longer, and that have not looked since. After a
-- minute only once in a minute: whatever keeps them from looking, an engine counts how often it was told.
SELECT e.id
FROM forebay.workflow_execution e
WHERE e.wake_at IS NOT NULL
  AND e.wake_at <= statement_timestamp() - make_interval(secs => $2::float8)
  AND (e.wake_at > statement_timestamp() - interval '1 minute'
       OR extract(epoch FROM statement_timestamp() - e.wake_at)::bigint % 60 = 0)
  AND e.owner IS NOT NULL
  AND e.status = 'RUNNING'
  AND e.engine = $1::text
  AND e.cancel_requested_at IS NULL
ORDER BY e.wake_at
LIMIT $3::bigint
