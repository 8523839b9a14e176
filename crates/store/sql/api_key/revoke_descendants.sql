-- Revokes every key that was created with key $1, directly or through another key. Keys that were created with an
-- already revoked key are found too.
WITH RECURSIVE made AS (
    SELECT child.id FROM forebay.api_key child WHERE child.parent_id = $1::uuid
    UNION
    SELECT child.id FROM made JOIN forebay.api_key child ON child.parent_id = made.id
)
UPDATE forebay.api_key
SET revoked_at = clock_timestamp()
WHERE id IN (SELECT made.id FROM made)
  AND revoked_at IS NULL
RETURNING id, workspace_id, name
