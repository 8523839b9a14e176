SELECT EXISTS (SELECT 1 FROM api_key WHERE workspace_id IS NULL AND revoked_at IS NULL) AS there
