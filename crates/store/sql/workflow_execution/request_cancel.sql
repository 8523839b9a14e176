-- Requests the cancellation of a running execution. The statement locks the row, so afterwards the execution has either
-- ended or has the request. A child is not woken itself; the caller wakes its root.
WITH requested AS (
    UPDATE forebay.workflow_execution
    SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
    WHERE id = $1::uuid
      AND workspace_id = $2::uuid
      AND status = 'RUNNING'
    RETURNING id, coalesce(root, id) AS root, engine, owner, parent),
stored AS (
    INSERT INTO forebay.run_request AS known (execution_id, root, engine, owner, wake_at, ends)
    SELECT id, root, engine, owner, CASE WHEN parent IS NULL THEN clock_timestamp() END, true FROM requested
    ON CONFLICT (execution_id) DO UPDATE SET owner = excluded.owner, wake_at = excluded.wake_at, ends = true)
SELECT owner FROM requested
