-- What a claim of these shards took, when its answer was lost: items that wait to be started.
SELECT q.id, q.workspace_id, q.workflow_definition_id, q.attempt_count, q.in_doubt,
       coalesce(d.deleted_at IS NOT NULL, true) AS gone
FROM forebay.execution_queue q
LEFT JOIN forebay.workflow_definition d ON d.id = q.workflow_definition_id
WHERE q.shard = ANY ($1::smallint[])
  AND q.stage = forebay.stage_slot()
  AND q.status = 'CLAIMED'
  AND q.claim_id = $2::uuid
