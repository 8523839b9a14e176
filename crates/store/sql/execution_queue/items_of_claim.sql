-- The items of claim $2 in these shards. The reply to that claim was lost, so these items still have to be started.
SELECT item.id, item.workspace_id, item.workflow_definition_id, item.attempt_count, item.in_doubt,
       coalesce(definition.deleted_at IS NOT NULL, true) AS definition_deleted
FROM forebay.execution_queue item
LEFT JOIN forebay.workflow_definition definition ON definition.id = item.workflow_definition_id
WHERE item.shard = ANY ($1::smallint[])
  AND item.stage = forebay.stage_slot()
  AND item.status = 'CLAIMED'
  AND item.claim_id = $2::uuid
