-- The graphs of these versions. A graph is immutable, so the caller may cache it.
SELECT id, graph FROM forebay.workflow_definition_version WHERE id = ANY ($1::uuid[])
