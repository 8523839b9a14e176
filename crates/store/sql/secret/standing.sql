-- How a living workspace stands to a name: its version now, 0 if there is none, and how many secrets there are.
SELECT coalesce((SELECT s.version FROM forebay.secret s WHERE s.workspace_id = w.id AND s.name = $2::text), 0) AS version,
       (SELECT count(*) FROM forebay.secret s WHERE s.workspace_id = w.id) AS secrets
FROM forebay.workspace w
WHERE w.id = $1::uuid
  AND w.deleted_at IS NULL
