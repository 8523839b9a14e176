-- What was claimed, with all that its message says. What is longer than $3 bytes stays here.
SELECT d.id, d.webhook_id, d.workspace_id, d.execution_id, d.attempts,
       greatest(extract(epoch FROM clock_timestamp() - d.since), 0)::float8 AS age_s,
       w.url, w.disabled_at IS NULL AS live,
       e.workflow_definition_id, e.status AS ended, f.name AS workflow_name, e.created_at, e.started_at, e.completed_at, e.duration_ms,
       CASE WHEN octet_length(e.output::text) <= $3::int THEN e.output END AS output,
       CASE WHEN octet_length(e.error::text) <= $3::int THEN e.error END AS error,
       coalesce(octet_length(e.output::text) > $3::int, false) OR coalesce(octet_length(e.error::text) > $3::int, false) AS cut
FROM forebay.webhook_delivery d
LEFT JOIN forebay.webhook w ON w.id = d.webhook_id
LEFT JOIN forebay.workflow_execution e ON e.id = d.execution_id
LEFT JOIN forebay.workflow_definition f ON f.id = e.workflow_definition_id
WHERE d.id = ANY ($1::uuid[])
  AND d.status = 'SENDING'
  AND d.claim_id = $2::uuid
ORDER BY d.id
