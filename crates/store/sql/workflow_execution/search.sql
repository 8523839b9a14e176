-- The executions of a workspace whose id is from $2 to $3, or whose idempotency key is $4. Ids are
-- looked at before workspaces: a range of them is short, a workspace is not.
SELECT within.id FROM (
    SELECT id, workspace_id FROM forebay.workflow_execution
    WHERE id BETWEEN $2::uuid AND $3::uuid ORDER BY id LIMIT $5::bigint) within
WHERE within.workspace_id = $1::uuid
UNION
SELECT id FROM forebay.workflow_execution
WHERE workspace_id = $1::uuid AND idempotency_key = $4::text
