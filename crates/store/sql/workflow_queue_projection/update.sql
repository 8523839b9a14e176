-- Changes jobs as a client of /rest/v1 requests it, in workspace $1, or none if more than $3 match. $2 is the request's
-- body. It is one statement, so that a client that claims a job and names the status it expects does so atomically.
-- Rows are locked before they are changed, at most $3 + 1 of them. After a wait for a lock, both conditions are
-- evaluated again. The table's trigger refuses illegal steps; a claim made here counts as a claim by plain SQL. If $4,
-- returns the changed rows, but no row that begins after 16 MiB. The text between /*name*/ and /*end*/ is an example.
-- `store::job::table` replaces it by the request, built only from known columns and parameters. For a root key, whose
-- $1 is null, it replaces the condition on the workspace too.
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
         SELECT written.line, written.position,
                sum(octet_length(written.line)) OVER (ORDER BY written.position) - octet_length(written.line) AS before
         FROM (SELECT row_to_json(requested)::text AS line, row_number() OVER () AS position
               FROM (SELECT /*columns*/projection."id", projection."status"/*end*/
                     FROM changed projection
                     WHERE $4::boolean
                     ORDER BY /*order*/projection."created_at", projection."id"/*end*/) requested) written),
     returned AS (
         SELECT coalesce('[' || string_agg(sized.line, ',' ORDER BY sized.position) || ']', '[]') AS body,
                count(*) AS rows
         FROM sized WHERE sized.before < 16777216)
SELECT returned.body, CASE WHEN $4 THEN returned.rows ELSE done.changed END AS rows, NULL::bigint AS total,
       CASE WHEN counted.found > $3 THEN counted.found ELSE done.changed END AS changed
FROM returned, counted, (SELECT count(*) AS changed FROM changed) done
