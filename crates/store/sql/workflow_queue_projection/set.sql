-- Changes rows as a client of /rest/v1 asks for it, of a workspace ($1; null: of all): one statement, so that a claim that names the
-- status it leaves is atomic. The table's guard refuses what is illegal; a claim made so is plain SQL's. $2 is the body; what stands
-- between /*name*/ and /*end*/ is an example: store::rest puts there what was asked, made of known columns and of parameters.
WITH s AS (SELECT (jsonb_populate_record(NULL::workflow_queue_projection, $2::jsonb)).*),
     u AS (UPDATE workflow_queue_projection p
           SET /*set*/"status" = (SELECT s."status" FROM s)/*end*/
           WHERE ($1::uuid IS NULL OR EXISTS (SELECT 1 FROM workflow_queue_job j WHERE j.id = p.id AND j.workspace_id = $1))
             AND /*where*/p."status" = 'pending'/*end*/
           RETURNING p.*)
SELECT coalesce(json_agg(row_to_json(c)), '[]')::text AS body, count(*) AS rows, NULL::bigint AS total
FROM (SELECT /*columns*/p."id", p."status"/*end*/ FROM u p ORDER BY /*order*/p."created_at", p."id"/*end*/) c
