-- Is there an active root key? A root key belongs to no workspace.
SELECT EXISTS (
    SELECT 1 FROM forebay.api_key
    WHERE workspace_id IS NULL AND revoked_at IS NULL AND coalesce(expires_at > clock_timestamp(), true)) AS there
