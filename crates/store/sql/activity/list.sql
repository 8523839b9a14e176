-- A page of the audit log, newest first: the entries about subject $2; without a subject those of workspace $1; without
-- either all. If both are given, an entry must match both. Filters: actor $3, not before time $4, before time $5.
--
-- An entry is a row of `activity`, or the start of an execution, which is in the execution's own row. Both are read in
-- the order of their indexes and merged. A start has its place by the time in its id, and comes after (in the list
-- before) an entry of the same time. The page begins after the position ($6, $7, $8): rows of `activity` before ($6,
-- $7), and executions before $8. Each row has the position after it.
--
-- (Rows of a workspace are compared by both columns of their index: see functions/lists.sql.)
--
-- At most the next $9 entries are read. The row with `last` shows where reading stopped, even if it does not match the
-- actor.
SELECT page.id, page.at, page.workspace_id, page.actor, page.action, page.subject_type, page.subject_id, page.detail,
       page.wanted, page.last, page.placed_at, coalesce(page.id, 9223372036854775807) AS next_id,
       coalesce(page.execution, forebay_r1.id_at(
           date_trunc('milliseconds', page.placed_at + interval '999 microseconds'))) AS next_execution
FROM (
    SELECT found.*, found.actor = coalesce($3::text, found.actor) AS wanted,
           row_number() OVER (ORDER BY found.placed_at DESC, found.execution DESC NULLS LAST, found.id DESC)
               = $9::bigint AS last
    FROM (
        (SELECT activity.id, NULL::uuid AS execution, activity.at AS placed_at, activity.at, activity.workspace_id,
                activity.actor, activity.action, activity.subject_type, activity.subject_id, activity.detail
         FROM forebay.activity
         WHERE activity.subject_id = $2::uuid
           AND activity.workspace_id IS NOT DISTINCT FROM coalesce($1::uuid, activity.workspace_id)
           AND activity.at >= coalesce($4::timestamptz, '-infinity')
           AND activity.at < coalesce($5::timestamptz, 'infinity')
           AND (activity.at, activity.id) < (coalesce($6::timestamptz, 'infinity'), $7::bigint)
         ORDER BY activity.at DESC, activity.id DESC LIMIT $9::bigint)
        UNION ALL
        (SELECT activity.id, NULL, activity.at, activity.at, activity.workspace_id, activity.actor, activity.action,
                activity.subject_type, activity.subject_id, activity.detail
         FROM forebay.activity
         WHERE $2::uuid IS NULL AND activity.workspace_id = $1::uuid
           AND activity.at >= coalesce($4::timestamptz, '-infinity')
           AND activity.at < coalesce($5::timestamptz, 'infinity')
           AND (activity.at, activity.id) < (coalesce($6::timestamptz, 'infinity'), $7::bigint)
         ORDER BY activity.at DESC, activity.id DESC LIMIT $9::bigint)
        UNION ALL
        (SELECT activity.id, NULL, activity.at, activity.at, activity.workspace_id, activity.actor, activity.action,
                activity.subject_type, activity.subject_id, activity.detail
         FROM forebay.activity
         WHERE $2::uuid IS NULL AND $1::uuid IS NULL
           AND activity.at >= coalesce($4::timestamptz, '-infinity')
           AND activity.at < coalesce($5::timestamptz, 'infinity')
           AND (activity.at, activity.id) < (coalesce($6::timestamptz, 'infinity'), $7::bigint)
         ORDER BY activity.at DESC, activity.id DESC LIMIT $9::bigint)
        UNION ALL
        SELECT NULL, start.id, forebay_r1.time_of(start.id), start.at, start.workspace_id, start.actor, start.action,
               start.subject_type, start.subject_id, start.detail
        FROM (
            (SELECT * FROM forebay.execution_start
             WHERE execution_start.id = $2::uuid AND execution_start.id < $8::uuid
               AND execution_start.workspace_id = coalesce($1::uuid, execution_start.workspace_id)
               AND execution_start.at >= coalesce($4::timestamptz, '-infinity')
               AND execution_start.at < coalesce($5::timestamptz, 'infinity'))
            UNION ALL
            (SELECT * FROM forebay.execution_start
             WHERE $2::uuid IS NULL
               AND (execution_start.workspace_id, execution_start.id)
                   < ($1::uuid, least($8::uuid, forebay_r1.id_at($5::timestamptz + interval '1 second')))
               AND (execution_start.workspace_id, execution_start.id)
                   >= ($1::uuid, forebay_r1.id_at(coalesce($4::timestamptz, 'epoch') - interval '1 minute'))
               AND execution_start.at >= coalesce($4::timestamptz, '-infinity')
               AND execution_start.at < coalesce($5::timestamptz, 'infinity')
             ORDER BY execution_start.workspace_id DESC, execution_start.id DESC LIMIT $9::bigint)
            UNION ALL
            (SELECT * FROM forebay.execution_start
             WHERE $2::uuid IS NULL AND $1::uuid IS NULL
               AND execution_start.id < least($8::uuid, forebay_r1.id_at($5::timestamptz + interval '1 second'))
               AND execution_start.id >= forebay_r1.id_at(coalesce($4::timestamptz, 'epoch') - interval '1 minute')
               AND execution_start.at >= coalesce($4::timestamptz, '-infinity')
               AND execution_start.at < coalesce($5::timestamptz, 'infinity')
             ORDER BY execution_start.id DESC LIMIT $9::bigint)) start) found
    ) page
WHERE page.wanted OR page.last
ORDER BY page.placed_at DESC, page.execution DESC NULLS LAST, page.id DESC
LIMIT $10::bigint
