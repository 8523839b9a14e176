-- A token for one place of an execution that has not ended. It is good until $7 s from now, and never longer than the
-- execution may last, or its wait if that is open.
INSERT INTO forebay.workflow_execution_token (hash, execution_id, node, iteration, workspace_id, created_by, expires_at)
SELECT $1::bytea, e.id, $3::text, $4::int, e.workspace_id, $6::text,
       least(e.deadline_at, a.expires_at, clock_timestamp() + make_interval(secs => $7::float8))
FROM forebay.workflow_execution e
LEFT JOIN forebay.workflow_execution_ask a ON a.execution_id = e.id AND a.node = $3 AND a.iteration = $4 AND a.status = 'OPEN'
WHERE e.id = $2::uuid
  AND ($5::uuid IS NULL OR e.workspace_id = $5)
  AND e.completed_at IS NULL
  AND (SELECT count(*) FROM forebay.workflow_execution_token t WHERE t.execution_id = e.id AND t.node = $3 AND t.iteration = $4) < $8::bigint
RETURNING workspace_id, expires_at
