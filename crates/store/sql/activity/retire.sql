-- Looks at the next $2 activities by id behind $3 and deletes those of more than $1 s ago. Ids follow the order of the
-- activities, nearly. Answers where to go on; no row: none of those looked at was old enough.
WITH scanned AS MATERIALIZED (
    SELECT a.id, a.at < clock_timestamp() - make_interval(secs => $1::float8) AS due
    FROM forebay.activity a
    WHERE a.id > $3::bigint
    ORDER BY a.id
    LIMIT $2::bigint),
deleted AS (
    DELETE FROM forebay.activity a
    WHERE a.id = ANY (ARRAY(SELECT s.id FROM scanned s WHERE s.due))
    RETURNING a.id)
SELECT max(s.id) AS id, (SELECT count(*) FROM deleted) AS retired
FROM scanned s
HAVING bool_or(s.due)
