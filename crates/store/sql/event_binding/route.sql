-- Jobs of a binding that wait are its definition's, or nobody's of ours, as it stands now.
UPDATE forebay.workflow_queue_job j
SET due_at = (SELECT now() FROM forebay.event_binding b WHERE b.id = $1::uuid AND b.workflow_definition_id IS NOT NULL)
WHERE j.binding_id = $1::uuid AND j.pending_since IS NOT NULL
