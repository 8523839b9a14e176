-- The deliveries that claim $2 holds, with the content of their messages. An output or error longer than $3 bytes is
-- left out, and `cut` reports it.
SELECT delivery.id, delivery.webhook_id, delivery.workspace_id, delivery.execution_id, delivery.attempts,
       greatest(extract(epoch FROM clock_timestamp() - delivery.since), 0)::float8 AS age_s,
       webhook.url, webhook.disabled_at IS NULL AS live,
       execution.workflow_definition_id, execution.status AS ended, definition.name AS workflow_name,
       execution.created_at, execution.started_at, execution.completed_at, execution.duration_ms,
       CASE WHEN octet_length(execution.output::text) <= $3::int THEN execution.output END AS output,
       CASE WHEN octet_length(execution.error::text) <= $3::int THEN execution.error END AS error,
       coalesce(octet_length(execution.output::text) > $3::int, false)
       OR coalesce(octet_length(execution.error::text) > $3::int, false) AS cut
FROM forebay.webhook_delivery delivery
LEFT JOIN forebay.webhook ON webhook.id = delivery.webhook_id
LEFT JOIN forebay.workflow_execution execution ON execution.id = delivery.execution_id
LEFT JOIN forebay.workflow_definition definition ON definition.id = execution.workflow_definition_id
WHERE delivery.id = ANY ($1::uuid[])
  AND delivery.status = 'SENDING'
  AND delivery.claim_id = $2::uuid
ORDER BY delivery.id
