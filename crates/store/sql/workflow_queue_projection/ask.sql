-- Rows as a client of /rest/v1 asks for them, of a workspace ($1), as one JSON text: at most $2 after the first $3, and
-- none that begins after 16 MiB. If $4, how many there are in all. What stands between /*name*/ and /*end*/ is an
-- example: store::job::table puts there what was asked, made of known columns and of parameters, and for a root key,
-- whose $1 is null, all workspaces.
SELECT coalesce('[' || string_agg(l.line, ',' ORDER BY l.n) || ']', '[]') AS body, count(*) AS rows,
       CASE WHEN $4::boolean THEN (
           SELECT count(*) FROM public.workflow_queue_projection p
           WHERE /*whose*/p.id IN (SELECT j.id FROM forebay.workflow_queue_job j WHERE j.workspace_id = $1::uuid)/*end*/
             AND /*where*/p."status" = 'pending'/*end*/) END AS total
FROM (SELECT r.line, r.n, sum(octet_length(r.line)) OVER (ORDER BY r.n) - octet_length(r.line) AS before
      FROM (SELECT row_to_json(c)::text AS line, row_number() OVER () AS n
            FROM (SELECT /*columns*/p."id", p."status"/*end*/
                  FROM public.workflow_queue_projection p
                  WHERE /*whose*/p.id IN (SELECT j.id FROM forebay.workflow_queue_job j WHERE j.workspace_id = $1::uuid)/*end*/
                    AND /*where*/p."status" = 'pending'/*end*/
                  ORDER BY /*order*/p."created_at", p."id"/*end*/
                  LIMIT $2::bigint OFFSET $3::bigint) c) r) l
WHERE l.before < 16777216
