-- Looks at the next $2 activities by id behind $3 and deletes those of more than $1 s ago. Ids follow the order of the
-- activities, nearly. Answers where to go on; no row: none of those looked at was old enough.
WITH scanned AS MATERIALIZED (
    SELECT activity.id, activity.at < clock_timestamp() - make_interval(secs => $1::float8) AS due
    FROM forebay.activity
    WHERE activity.id > $3::bigint
    ORDER BY activity.id
    LIMIT $2::bigint),
deleted AS (
    DELETE FROM forebay.activity
    WHERE activity.id = ANY (ARRAY(SELECT scanned.id FROM scanned WHERE scanned.due))
    RETURNING activity.id)
SELECT max(scanned.id) AS id, (SELECT count(*) FROM deleted) AS retired
FROM scanned
HAVING bool_or(scanned.due)
