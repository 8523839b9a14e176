-- The open descendants of root $1 whose own cancellation was requested.
SELECT execution_id AS id
FROM forebay.run_request
WHERE root = $1::uuid
  AND execution_id <> root
  AND ends
ORDER BY execution_id
LIMIT 20000
