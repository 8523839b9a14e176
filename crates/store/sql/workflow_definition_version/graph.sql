-- Immutable graphs, to be kept in memory.
SELECT id, graph FROM forebay.workflow_definition_version WHERE id = ANY ($1::uuid[])
