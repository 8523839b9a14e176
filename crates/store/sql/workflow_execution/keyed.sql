-- The executions that were accepted under these idempotency keys, and whether they were for the same content.
SELECT asked.ord, execution.id AS execution, execution.fingerprint IS NOT DISTINCT FROM asked.fingerprint AS same
FROM unnest($1::uuid[], $2::text[], $3::bytea[]) WITH ORDINALITY AS asked(workspace_id, key, fingerprint, ord)
-- LIMIT 1: always a probe of the unique index, never a scan.
CROSS JOIN LATERAL (
    SELECT keyed.id, keyed.fingerprint FROM forebay.workflow_execution AS keyed
    WHERE keyed.workspace_id = asked.workspace_id AND keyed.idempotency_key = asked.key LIMIT 1
) AS execution
ORDER BY asked.ord
