-- Changes rows as a client of /rest/v1 asks for it, of a workspace ($1), or none if there are more than $3: one
-- statement, so that a claim that names the status it leaves is atomic. Rows are locked before they are changed, one
-- more than $3 at most; whoever waited for a lock looks at its conditions again, in both places. The table's guard
-- refuses what is illegal; a claim made so is plain SQL's. $2 is the body. If $4, the changed rows are told, and none
-- that begins after 16 MiB. What stands between /*name*/ and /*end*/ is an example: store::job::table puts there what
-- was asked, made of known columns and of parameters, and for a root key, whose $1 is null, all workspaces.
WITH body AS (SELECT (jsonb_populate_record(NULL::public.workflow_queue_projection, $2::jsonb)).*),
     chosen AS MATERIALIZED (
         SELECT projection.id FROM public.workflow_queue_projection projection
         WHERE /*whose*/projection.id IN (SELECT job.id
                                          FROM forebay.workflow_queue_job job
                                          WHERE job.workspace_id = $1::uuid)/*end*/
           AND /*where*/projection."status" = 'pending'/*end*/
         LIMIT $3::bigint + 1
         FOR UPDATE OF projection),
     counted AS MATERIALIZED (SELECT count(*) AS found FROM chosen),
     changed AS (
         UPDATE public.workflow_queue_projection projection
         SET /*set*/"status" = (SELECT body."status" FROM body)/*end*/
         WHERE projection.id = ANY (ARRAY(SELECT chosen.id
                                          FROM chosen
                                          WHERE (SELECT counted.found FROM counted) <= $3))
           AND /*where*/projection."status" = 'pending'/*end*/
         RETURNING projection.*),
     sized AS (
         SELECT written.line, written.place,
                sum(octet_length(written.line)) OVER (ORDER BY written.place) - octet_length(written.line) AS before
         FROM (SELECT row_to_json(asked)::text AS line, row_number() OVER () AS place
               FROM (SELECT /*columns*/projection."id", projection."status"/*end*/
                     FROM changed projection
                     WHERE $4::boolean
                     ORDER BY /*order*/projection."created_at", projection."id"/*end*/) asked) written),
     told AS (
         SELECT coalesce('[' || string_agg(sized.line, ',' ORDER BY sized.place) || ']', '[]') AS body,
                count(*) AS rows
         FROM sized WHERE sized.before < 16777216)
SELECT told.body, CASE WHEN $4 THEN told.rows ELSE done.changed END AS rows, NULL::bigint AS total,
       CASE WHEN counted.found > $3 THEN counted.found ELSE done.changed END AS changed
FROM told, counted, (SELECT count(*) AS changed FROM changed) done
