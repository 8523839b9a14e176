-- Reads the next $2 entries of the audit log by id after $3, and deletes those older than $1 s. Ids roughly follow the
-- times of the entries. Returns the id to continue after. Returns no row if no entry that was read is old enough.
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
