-- Adds a webhook, if the workspace is not deleted and below its limit. The statement locks the workspace's row. So a
-- deletion of the workspace commits before this statement, or deletes this webhook too.
INSERT INTO forebay.webhook (id, workspace_id, url, events, workflow_definition_id, description, created_by)
SELECT $1::uuid, workspace.id, $3::text, $4::text[], $5::uuid, $6::text, $7::text
FROM forebay.workspace
WHERE workspace.id = $2::uuid
  AND workspace.deleted_at IS NULL
  AND (SELECT count(*) FROM forebay.webhook known WHERE known.workspace_id = $2::uuid) < $8::bigint
FOR SHARE OF workspace
