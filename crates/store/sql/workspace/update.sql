-- Changes what a workspace may use. The trigger takes the shard's lock: see functions/claim.sql.
-- $2 tier, $3 whether the override changes, $4 the override, $5 weight; null leaves as is.
UPDATE workspace
SET tier = coalesce($2::text, tier),
    limit_override = CASE WHEN $3::boolean THEN $4::int ELSE limit_override END,
    weight = coalesce($5::smallint, weight)
WHERE id = $1::uuid
  AND deleted_at IS NULL
RETURNING id
