-- The executions that were accepted under these idempotency keys, and whether the content of the request was the same.
SELECT requested.ord, execution.id AS execution,
       execution.fingerprint IS NOT DISTINCT FROM requested.fingerprint AS same
FROM unnest($1::uuid[], $2::text[], $3::bytea[]) WITH ORDINALITY AS requested(workspace_id, key, fingerprint, ord)
-- LIMIT 1: always a probe of the unique index, never a scan.
CROSS JOIN LATERAL (
    SELECT keyed.id, keyed.fingerprint FROM forebay.workflow_execution AS keyed
    WHERE keyed.workspace_id = requested.workspace_id AND keyed.idempotency_key = requested.key LIMIT 1
) AS execution
ORDER BY requested.ord
