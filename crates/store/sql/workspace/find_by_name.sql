SELECT id FROM forebay.workspace WHERE name = $1::text AND deleted_at IS NULL
