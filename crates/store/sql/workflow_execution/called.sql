-- Runs of an engine elsewhere that something came for a while ago, and that have not looked since: whoever was to tell them could not.
SELECT id
FROM workflow_execution
WHERE wake_at <= statement_timestamp() - make_interval(secs => $2::float8)
  AND owner IS NOT NULL
  AND engine = $1::text
  AND status = 'RUNNING'
  AND cancel_requested_at IS NULL
ORDER BY wake_at
LIMIT $3::bigint
