-- How a living workspace stands to a name: its version now, 0 if there is none, and how many secrets there are.
SELECT coalesce((SELECT secret.version
                 FROM forebay.secret
                 WHERE secret.workspace_id = workspace.id AND secret.name = $2::text), 0) AS version,
       (SELECT count(*) FROM forebay.secret WHERE secret.workspace_id = workspace.id) AS secrets
FROM forebay.workspace
WHERE workspace.id = $1::uuid
  AND workspace.deleted_at IS NULL
