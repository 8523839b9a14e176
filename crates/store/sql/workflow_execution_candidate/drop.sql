-- Candidates that were judged.
DELETE FROM workflow_execution_candidate WHERE id = ANY ($1::bigint[])
