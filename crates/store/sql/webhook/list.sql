-- Webhooks of a workspace (null: of all), or one of them, by id.
SELECT w.id, w.workspace_id, w.url, w.events, w.workflow_definition_id, d.name AS definition_name, w.description, w.failing_since,
       w.disabled_at, w.disabled_reason, w.created_at, w.updated_at, w.created_by,
       (SELECT max(s.version) FROM forebay.webhook_secret s WHERE s.webhook_id = w.id) AS secret_version
FROM forebay.webhook w
LEFT JOIN forebay.workflow_definition d ON d.id = w.workflow_definition_id
WHERE w.id > $1::uuid
  AND ($2::uuid IS NULL OR w.workspace_id = $2)
  AND ($3::uuid IS NULL OR w.id = $3)
ORDER BY w.id
LIMIT $4::bigint
