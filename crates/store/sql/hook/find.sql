-- The hook of a token, of a definition and a workspace that live. A token before the last opens until its time is up.
SELECT h.id, h.workspace_id, h.workflow_definition_id, h.rule
FROM forebay.hook h
JOIN forebay.workflow_definition d ON d.id = h.workflow_definition_id
JOIN forebay.workspace w ON w.id = h.workspace_id
WHERE (h.token_hash = $1::bytea OR (h.previous_hash = $1 AND h.previous_until > clock_timestamp()))
  AND d.deleted_at IS NULL
  AND d.status <> 'DRAFT'
  AND w.deleted_at IS NULL
