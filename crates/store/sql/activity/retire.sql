-- Deletes what was done more than $1 s ago, a bounded number of the oldest. Ids follow the order of
-- the deeds, nearly.
DELETE FROM activity
WHERE id IN (SELECT a.id FROM activity a ORDER BY a.id LIMIT $2::bigint)
  AND at < clock_timestamp() - make_interval(secs => $1::float8)
