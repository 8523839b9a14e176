-- Jobs of a binding that wait are its definition's, or nobody's of ours, as it stands now.
UPDATE forebay.workflow_queue_job job
SET due_at = (SELECT now()
              FROM forebay.event_binding binding
              WHERE binding.id = $1::uuid AND binding.workflow_definition_id IS NOT NULL)
WHERE job.binding_id = $1::uuid AND job.pending_since IS NOT NULL
