-- Looks at the next $2 deliveries behind ($3, $4), oldest first, among those made more than $1 s ago; deletes those
-- that have ended. Answers where to go on; no row: there are no more.
WITH scanned AS MATERIALIZED (
    SELECT d.id, d.created_at, d.ended_at
    FROM forebay.webhook_delivery d
    WHERE d.created_at < statement_timestamp() - make_interval(secs => $1::float8)
      AND d.created_at >= coalesce($3::timestamptz, '-infinity')
      AND (d.created_at, d.id) > (coalesce($3::timestamptz, '-infinity'), $4::uuid)
    ORDER BY d.created_at, d.id
    LIMIT $2::bigint),
deleted AS (
    DELETE FROM forebay.webhook_delivery d
    WHERE d.id = ANY (ARRAY(SELECT s.id FROM scanned s WHERE s.ended_at IS NOT NULL))
      AND d.ended_at IS NOT NULL
    RETURNING d.id)
SELECT s.created_at AS at, s.id, (SELECT count(*) FROM deleted) AS retired
FROM scanned s
ORDER BY s.created_at DESC, s.id DESC
LIMIT 1
