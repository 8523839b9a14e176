-- Rows as a client of /rest/v1 asks for them, of a workspace ($1), as one JSON text: at most $2 after the first $3, and
-- none that begins after 16 MiB. If $4, how many there are in all. What stands between /*name*/ and /*end*/ is an
-- example: store::job::table puts there what was asked, made of known columns and of parameters, and for a root key,
-- whose $1 is null, all workspaces.
SELECT coalesce('[' || string_agg(sized.line, ',' ORDER BY sized.place) || ']', '[]') AS body, count(*) AS rows,
       CASE WHEN $4::boolean THEN (
           SELECT count(*) FROM public.workflow_queue_projection projection
           WHERE /*whose*/projection.id IN (SELECT job.id
                                            FROM forebay.workflow_queue_job job
                                            WHERE job.workspace_id = $1::uuid)/*end*/
             AND /*where*/projection."status" = 'pending'/*end*/) END AS total
FROM (SELECT written.line, written.place,
             sum(octet_length(written.line)) OVER (ORDER BY written.place) - octet_length(written.line) AS before
      FROM (SELECT row_to_json(asked)::text AS line, row_number() OVER () AS place
            FROM (SELECT /*columns*/projection."id", projection."status"/*end*/
                  FROM public.workflow_queue_projection projection
                  WHERE /*whose*/projection.id IN (SELECT job.id
                                                   FROM forebay.workflow_queue_job job
                                                   WHERE job.workspace_id = $1::uuid)/*end*/
                    AND /*where*/projection."status" = 'pending'/*end*/
                  ORDER BY /*order*/projection."created_at", projection."id"/*end*/
                  LIMIT $2::bigint OFFSET $3::bigint) asked) written) sized
WHERE sized.before < 16777216
