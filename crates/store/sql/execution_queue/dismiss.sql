-- FAILED -> gone. The execution stays as the record.
DELETE FROM forebay.execution_queue WHERE id = $1::uuid AND workspace_id = $2::uuid AND status = 'FAILED' RETURNING id
