-- A page of the audit log, newest first: of the subject $2, else of the workspace $1, else all; $1
-- holds in each. By the actor $3, not before $4, before the place ($5, $6). An actor is looked for
-- among the next $7 rows only; the row that is `last` tells how far that came, wanted or not.
SELECT page.id, page.at, page.workspace_id, page.actor, page.action, page.subject_type, page.subject_id, page.detail,
       page.wanted, page.last
FROM (
    SELECT found.*, found.actor = coalesce($3::text, found.actor) AS wanted,
           row_number() OVER (ORDER BY found.at DESC, found.id DESC) = $7::bigint AS last
    FROM (
        (SELECT * FROM forebay.activity
         WHERE activity.subject_id = $2::uuid
           AND activity.workspace_id IS NOT DISTINCT FROM coalesce($1::uuid, activity.workspace_id)
           AND activity.at >= coalesce($4::timestamptz, '-infinity')
           AND (activity.at, activity.id) < (coalesce($5::timestamptz, 'infinity'), $6::bigint)
         ORDER BY activity.at DESC, activity.id DESC LIMIT $7::bigint)
        UNION ALL
        (SELECT * FROM forebay.activity
         WHERE $2::uuid IS NULL AND activity.workspace_id = $1::uuid
           AND activity.at >= coalesce($4::timestamptz, '-infinity')
           AND (activity.at, activity.id) < (coalesce($5::timestamptz, 'infinity'), $6::bigint)
         ORDER BY activity.at DESC, activity.id DESC LIMIT $7::bigint)
        UNION ALL
        (SELECT * FROM forebay.activity
         WHERE $2::uuid IS NULL AND $1::uuid IS NULL
           AND activity.at >= coalesce($4::timestamptz, '-infinity')
           AND (activity.at, activity.id) < (coalesce($5::timestamptz, 'infinity'), $6::bigint)
         ORDER BY activity.at DESC, activity.id DESC LIMIT $7::bigint)) found
    ) page
WHERE page.wanted OR page.last
ORDER BY page.at DESC, page.id DESC
LIMIT $8::bigint
