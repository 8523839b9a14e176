-- Adds the next version of a definition. The caller has locked the definition's row.
INSERT INTO forebay.workflow_definition_version (id, workspace_id, workflow_definition_id, number, graph, content_hash,
                                                 source, timeout_ms)
SELECT $1::uuid, $2::uuid, $3::uuid, coalesce(max(number), 0) + 1, $4::jsonb, $5::text, $6::text, $7::bigint
FROM forebay.workflow_definition_version WHERE workflow_definition_id = $3::uuid
RETURNING number
