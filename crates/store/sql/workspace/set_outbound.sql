-- Replaces a workspace's own rules for outbound calls, unless it is deleted.
UPDATE forebay.workspace
SET outbound_allow = $2::text[], outbound_deny = $3::text[]
WHERE id = $1::uuid
  AND deleted_at IS NULL
RETURNING id
