-- Locks a definition, so that concurrent requests add its versions one after the other.
SELECT id
FROM forebay.workflow_definition
WHERE id = $1::uuid AND workspace_id = $2::uuid AND deleted_at IS NULL
FOR UPDATE
