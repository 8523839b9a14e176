-- A page of the audit log, newest first: of the subject $2, else of the workspace $1, else all; $1
-- holds in each. By the actor $3, not before $4, before the place ($5, $6). An actor is looked for
-- among the next $7 rows only; the row that is `last` tells how far that came, wanted or not.
SELECT a.id, a.at, a.workspace_id, a.actor, a.action, a.subject_type, a.subject_id, a.detail, a.wanted, a.last
FROM (
    SELECT f.*, f.actor = coalesce($3::text, f.actor) AS wanted,
           row_number() OVER (ORDER BY f.at DESC, f.id DESC) = $7::bigint AS last
    FROM (
        (SELECT * FROM forebay.activity a
         WHERE a.subject_id = $2::uuid AND a.workspace_id IS NOT DISTINCT FROM coalesce($1::uuid, a.workspace_id)
           AND a.at >= coalesce($4::timestamptz, '-infinity')
           AND (a.at, a.id) < (coalesce($5::timestamptz, 'infinity'), $6::bigint)
         ORDER BY a.at DESC, a.id DESC LIMIT $7::bigint)
        UNION ALL
        (SELECT * FROM forebay.activity a
         WHERE $2::uuid IS NULL AND a.workspace_id = $1::uuid
           AND a.at >= coalesce($4::timestamptz, '-infinity')
           AND (a.at, a.id) < (coalesce($5::timestamptz, 'infinity'), $6::bigint)
         ORDER BY a.at DESC, a.id DESC LIMIT $7::bigint)
        UNION ALL
        (SELECT * FROM forebay.activity a
         WHERE $2::uuid IS NULL AND $1::uuid IS NULL
           AND a.at >= coalesce($4::timestamptz, '-infinity')
           AND (a.at, a.id) < (coalesce($5::timestamptz, 'infinity'), $6::bigint)
         ORDER BY a.at DESC, a.id DESC LIMIT $7::bigint)) f
    ) a
WHERE a.wanted OR a.last
ORDER BY a.at DESC, a.id DESC
LIMIT $8::bigint
