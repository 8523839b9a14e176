DELETE FROM forebay.secret WHERE workspace_id = $1::uuid AND name = $2::text RETURNING version
