-- Webhooks by id, after $1. Optional filters: workspace $2, webhook $3.
SELECT webhook.id, webhook.workspace_id, webhook.url, webhook.events, webhook.workflow_definition_id,
       definition.name AS definition_name, webhook.description, webhook.failing_since, webhook.disabled_at,
       webhook.disabled_reason, webhook.created_at, webhook.updated_at, webhook.created_by,
       (SELECT max(secret.version)
        FROM forebay.webhook_secret secret
        WHERE secret.webhook_id = webhook.id) AS secret_version
FROM forebay.webhook
LEFT JOIN forebay.workflow_definition definition ON definition.id = webhook.workflow_definition_id
WHERE webhook.id > $1::uuid
  AND ($2::uuid IS NULL OR webhook.workspace_id = $2)
  AND ($3::uuid IS NULL OR webhook.id = $3)
ORDER BY webhook.id
LIMIT $4::bigint
