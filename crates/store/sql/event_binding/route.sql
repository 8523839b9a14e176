-- Gives the pending jobs of a binding to its current definition, or to external workers if the binding has no
-- definition.
UPDATE forebay.workflow_queue_job job
SET due_at = (SELECT now()
              FROM forebay.event_binding binding
              WHERE binding.id = $1::uuid AND binding.workflow_definition_id IS NOT NULL)
WHERE job.binding_id = $1::uuid AND job.pending_since IS NOT NULL
