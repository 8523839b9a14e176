-- Changes rows as a client of /rest/v1 asks for it, of a workspace ($1), or none if there are more than $3: one
-- statement, so that a claim that names the status it leaves is atomic. Rows are locked before they are changed, one
-- more than $3 at most; whoever waited for a lock looks at its conditions again, in both places. The table's guard
-- refuses what is illegal; a claim made so is plain SQL's. $2 is the body. If $4, the changed rows are told, and none
-- that begins after 16 MiB. What stands between /*name*/ and /*end*/ is an example: store::job::table puts there what
-- was asked, made of known columns and of parameters, and for a root key, whose $1 is null, all workspaces.
WITH s AS (SELECT (jsonb_populate_record(NULL::public.workflow_queue_projection, $2::jsonb)).*),
     c AS MATERIALIZED (
         SELECT p.id FROM public.workflow_queue_projection p
         WHERE /*whose*/p.id IN (SELECT j.id FROM forebay.workflow_queue_job j WHERE j.workspace_id = $1::uuid)/*end*/
           AND /*where*/p."status" = 'pending'/*end*/
         LIMIT $3::bigint + 1
         FOR UPDATE OF p),
     n AS MATERIALIZED (SELECT count(*) AS found FROM c),
     u AS (UPDATE public.workflow_queue_projection p
           SET /*set*/"status" = (SELECT s."status" FROM s)/*end*/
           WHERE p.id = ANY (ARRAY(SELECT c.id FROM c WHERE (SELECT n.found FROM n) <= $3))
             AND /*where*/p."status" = 'pending'/*end*/
           RETURNING p.*),
     l AS (SELECT r.line, r.n, sum(octet_length(r.line)) OVER (ORDER BY r.n) - octet_length(r.line) AS before
           FROM (SELECT row_to_json(c)::text AS line, row_number() OVER () AS n
                 FROM (SELECT /*columns*/p."id", p."status"/*end*/
                       FROM u p WHERE $4::boolean ORDER BY /*order*/p."created_at", p."id"/*end*/) c) r),
     t AS (SELECT coalesce('[' || string_agg(l.line, ',' ORDER BY l.n) || ']', '[]') AS body, count(*) AS rows
           FROM l WHERE l.before < 16777216)
SELECT t.body, CASE WHEN $4 THEN t.rows ELSE d.changed END AS rows, NULL::bigint AS total,
       CASE WHEN n.found > $3 THEN n.found ELSE d.changed END AS changed
FROM t, n, (SELECT count(*) AS changed FROM u) d
