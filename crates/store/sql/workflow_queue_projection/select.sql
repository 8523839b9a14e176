-- Selects jobs as a client of /rest/v1 requests them, in workspace $1, as one JSON text. Returns at most $2 rows after
-- the first $3, and no row that begins after 16 MiB. If $4, also the total count. The text between /*name*/ and /*end*/
-- is an example. `store::job::table` replaces it by the request, built only from known columns and parameters. For a
-- root key, whose $1 is null, it replaces the condition on the workspace too.
SELECT coalesce('[' || string_agg(sized.line, ',' ORDER BY sized.position) || ']', '[]') AS body, count(*) AS rows,
       CASE WHEN $4::boolean THEN (
           SELECT count(*) FROM public.workflow_queue_projection projection
           WHERE /*whose*/projection.id IN (SELECT job.id
                                            FROM forebay.workflow_queue_job job
                                            WHERE job.workspace_id = $1::uuid)/*end*/
             AND /*where*/projection."status" = 'pending'/*end*/) END AS total
FROM (SELECT written.line, written.position,
             sum(octet_length(written.line)) OVER (ORDER BY written.position) - octet_length(written.line) AS before
      FROM (SELECT row_to_json(requested)::text AS line, row_number() OVER () AS position
            FROM (SELECT /*columns*/projection."id", projection."status"/*end*/
                  FROM public.workflow_queue_projection projection
                  WHERE /*whose*/projection.id IN (SELECT job.id
                                                   FROM forebay.workflow_queue_job job
                                                   WHERE job.workspace_id = $1::uuid)/*end*/
                    AND /*where*/projection."status" = 'pending'/*end*/
                  ORDER BY /*order*/projection."created_at", projection."id"/*end*/
                  LIMIT $2::bigint OFFSET $3::bigint) requested) written) sized
WHERE sized.before < 16777216
