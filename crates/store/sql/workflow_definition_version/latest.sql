-- The newest version of a definition, published or not.
SELECT id, number, content_hash, graph FROM forebay.workflow_definition_version
WHERE workflow_definition_id = $1::uuid ORDER BY number DESC LIMIT 1
