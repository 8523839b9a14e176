-- Fences the owner of a run out and asks for its end: from now on none of its facts is stored, and whoever owns the run
-- next ends it. The slot stays taken until then. Repeated it changes nothing: `news` tells.
UPDATE forebay.workflow_execution execution
SET terminate_requested_at = coalesce(execution.terminate_requested_at, clock_timestamp()),
    cancel_requested_at = coalesce(execution.cancel_requested_at, clock_timestamp()),
    owner_epoch = execution.owner_epoch + CASE WHEN execution.terminate_requested_at IS NULL THEN 1 ELSE 0 END
FROM (SELECT id, terminate_requested_at IS NULL AS news FROM forebay.workflow_execution WHERE id = $1::uuid) before
WHERE execution.id = before.id
  AND execution.workspace_id = $2::uuid
  AND execution.status = 'RUNNING'
  AND execution.owner IS NOT NULL
RETURNING execution.owner, before.news
