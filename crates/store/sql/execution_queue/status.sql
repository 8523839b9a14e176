SELECT status FROM forebay.execution_queue WHERE id = $1::uuid AND workspace_id = $2::uuid
