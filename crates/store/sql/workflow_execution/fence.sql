-- Fences out the owner of a run and requests the run's termination. From now on no fact that this owner sends is
-- stored, and the next owner ends the run. The run keeps its slot until then. A repeated call changes nothing; `is_new`
-- reports whether this call was the first.
WITH fenced AS (
    UPDATE forebay.workflow_execution execution
    SET terminate_requested_at = coalesce(execution.terminate_requested_at, clock_timestamp()),
        cancel_requested_at = coalesce(execution.cancel_requested_at, clock_timestamp()),
        owner_epoch = execution.owner_epoch + CASE WHEN execution.terminate_requested_at IS NULL THEN 1 ELSE 0 END
    FROM (SELECT id, terminate_requested_at IS NULL AS is_new
          FROM forebay.workflow_execution
          WHERE id = $1::uuid) before
    WHERE execution.id = before.id
      AND execution.workspace_id = $2::uuid
      AND execution.status = 'RUNNING'
      AND execution.owner IS NOT NULL
    RETURNING execution.id, coalesce(execution.root, execution.id) AS root, execution.engine, execution.owner,
              before.is_new),
stored AS (
    INSERT INTO forebay.run_request AS known (execution_id, root, engine, owner, ends)
    SELECT id, root, engine, owner, true FROM fenced
    ON CONFLICT (execution_id) DO UPDATE SET owner = excluded.owner, ends = true)
SELECT owner, is_new FROM fenced
