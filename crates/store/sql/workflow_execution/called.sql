-- Runs of an engine elsewhere that something came for $2 s ago or longer, and that have not looked since. After a
-- minute only once in a minute: whatever keeps them from looking, an engine counts how often it was told.
SELECT execution.id
FROM forebay.workflow_execution execution
WHERE execution.wake_at IS NOT NULL
  AND execution.wake_at <= statement_timestamp() - make_interval(secs => $2::float8)
  AND (execution.wake_at > statement_timestamp() - interval '1 minute'
       OR extract(epoch FROM statement_timestamp() - execution.wake_at)::bigint % 60 = 0)
  AND execution.owner IS NOT NULL
  AND execution.status = 'RUNNING'
  AND execution.engine = $1::text
  AND execution.cancel_requested_at IS NULL
ORDER BY execution.wake_at
LIMIT $3::bigint
