-- The executions of a workspace with an id from $2 to $3, or with the idempotency key $4. The id range is evaluated
-- before the workspace, because it contains few executions and a workspace may have many.
SELECT within.id FROM (
    SELECT id, workspace_id FROM forebay.workflow_execution
    WHERE id BETWEEN $2::uuid AND $3::uuid ORDER BY id LIMIT $5::bigint) within
WHERE within.workspace_id = $1::uuid
UNION
SELECT id FROM forebay.workflow_execution
WHERE workspace_id = $1::uuid AND idempotency_key = $4::text
