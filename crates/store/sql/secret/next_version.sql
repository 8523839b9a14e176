-- The current version of a secret (0 if it does not exist), and how many secrets its workspace has. Returns no row if
-- the workspace is deleted.
SELECT coalesce((SELECT secret.version
                 FROM forebay.secret
                 WHERE secret.workspace_id = workspace.id AND secret.name = $2::text), 0) AS version,
       (SELECT count(*) FROM forebay.secret WHERE secret.workspace_id = workspace.id) AS secrets
FROM forebay.workspace
WHERE workspace.id = $1::uuid
  AND workspace.deleted_at IS NULL
