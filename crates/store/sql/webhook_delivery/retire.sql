-- Deliveries that were made more than $1 s ago and have ended.
DELETE FROM webhook_delivery d
WHERE d.id = ANY (ARRAY(
    SELECT d.id FROM webhook_delivery d
    WHERE d.created_at < statement_timestamp() - make_interval(secs => $1::float8)
      AND d.ended_at IS NOT NULL
    ORDER BY d.created_at
    LIMIT $2::bigint))
  AND d.ended_at IS NOT NULL
