-- Adds a token for one wait of an execution that has not ended. The token expires in $7 s, at the execution's deadline,
-- or when the wait expires, whichever comes first. A wait that is not open yet has no expiry to compare. Returns no row
-- if the wait already has $8 tokens.
INSERT INTO forebay.workflow_execution_token (hash, execution_id, node, iteration, workspace_id, created_by, expires_at)
SELECT $1::bytea, execution.id, $3::text, $4::int, execution.workspace_id, $6::text,
       least(execution.deadline_at, wait.expires_at, clock_timestamp() + make_interval(secs => $7::float8))
FROM forebay.workflow_execution execution
LEFT JOIN forebay.workflow_execution_wait wait ON wait.execution_id = execution.id AND wait.node = $3
    AND wait.iteration = $4 AND wait.status = 'OPEN'
WHERE execution.id = $2::uuid
  AND ($5::uuid IS NULL OR execution.workspace_id = $5)
  AND execution.completed_at IS NULL
  AND (SELECT count(*)
       FROM forebay.workflow_execution_token token
       WHERE token.execution_id = execution.id AND token.node = $3 AND token.iteration = $4) < $8::bigint
RETURNING workspace_id, expires_at
