-- Changes the limits of a workspace. The trigger on the table takes the shard's lock: see functions/claim.sql. $2 tier,
-- $3 whether the limit override changes, $4 the override, $5 weight, $6 whether the backlog limit changes, $7 the
-- backlog limit. A null tier or weight stays unchanged. The stored backlog count was made under the previous limit, so
-- it is reset.
WITH forgotten AS (
    UPDATE forebay.backlog
    SET counted_at = '-infinity', counted = 0
    WHERE workspace_id = $1::uuid AND ($6::boolean OR $2::text IS NOT NULL))
UPDATE forebay.workspace
SET tier = coalesce($2::text, tier),
    limit_override = CASE WHEN $3::boolean THEN $4::int ELSE limit_override END,
    weight = coalesce($5::smallint, weight),
    max_backlog = CASE WHEN $6::boolean THEN $7::int ELSE max_backlog END
WHERE id = $1::uuid
  AND deleted_at IS NULL
RETURNING id
