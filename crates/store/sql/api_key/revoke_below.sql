-- Ends every key that was made with $1, or with one that was. Keys that ended before are walked through too.
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
