-- Stores the next version of a secret, if the workspace is not deleted and has room for it. The statement locks the
-- workspace's row. So a deletion of the workspace commits before this statement, or deletes this secret too. Returns no
-- row if another request stored this version first, or if the limit $8 is reached. $9: whether the allowed hosts
-- change; $10: the new allowed hosts (null: any host).
INSERT INTO forebay.secret (workspace_id, name, version, value_sealed, key_sealed, key_id, created_by, hosts)
SELECT workspace.id, $2::text, $3::int, $4::bytea, $5::bytea, $6::text, $7::text, $10::text[]
FROM forebay.workspace
WHERE workspace.id = $1::uuid
  AND workspace.deleted_at IS NULL
  AND ($3::int > 1 OR (SELECT count(*) FROM forebay.secret WHERE secret.workspace_id = $1::uuid) < $8::bigint)
FOR SHARE OF workspace
ON CONFLICT (workspace_id, name) DO UPDATE
SET version = EXCLUDED.version,
    value_sealed = EXCLUDED.value_sealed,
    key_sealed = EXCLUDED.key_sealed,
    key_id = EXCLUDED.key_id,
    created_by = EXCLUDED.created_by,
    hosts = CASE WHEN $9::boolean THEN EXCLUDED.hosts ELSE secret.hosts END,
    updated_at = clock_timestamp()
WHERE secret.version = EXCLUDED.version - 1
RETURNING name, version, key_id, created_at, updated_at, created_by, hosts
