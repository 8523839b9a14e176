-- Reads the next $2 deliveries after ($3, $4) that were made more than $1 s ago, oldest first, and deletes those that
-- have ended. Returns the position to continue after. Returns no row if there are no more such deliveries.
WITH scanned AS MATERIALIZED (
    SELECT delivery.id, delivery.created_at, delivery.ended_at
    FROM forebay.webhook_delivery delivery
    WHERE delivery.created_at < statement_timestamp() - make_interval(secs => $1::float8)
      AND delivery.created_at >= coalesce($3::timestamptz, '-infinity')
      AND (delivery.created_at, delivery.id) > (coalesce($3::timestamptz, '-infinity'), $4::uuid)
    ORDER BY delivery.created_at, delivery.id
    LIMIT $2::bigint),
deleted AS (
    DELETE FROM forebay.webhook_delivery delivery
    WHERE delivery.id = ANY (ARRAY(SELECT scanned.id FROM scanned WHERE scanned.ended_at IS NOT NULL))
      AND delivery.ended_at IS NOT NULL
    RETURNING delivery.id)
SELECT scanned.created_at AS at, scanned.id, (SELECT count(*) FROM deleted) AS retired
FROM scanned
ORDER BY scanned.created_at DESC, scanned.id DESC
LIMIT 1
