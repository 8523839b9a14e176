-- The binding of a definition as its published version has it, in place of the last one's. The workspace called
-- platform binds for the whole platform. The same type keeps its row, and so the jobs that wait under it.
WITH d AS (
    SELECT d.id, CASE WHEN w.name = 'platform' THEN NULL ELSE w.id END AS workspace_id, v.graph #> '{on,event}' AS rule
    FROM forebay.workflow_definition d
    JOIN forebay.workspace w ON w.id = d.workspace_id
    JOIN forebay.workflow_definition_version v ON v.id = d.published_version
    WHERE d.id = $1::uuid),
gone AS (
    DELETE FROM forebay.event_binding b USING d
    WHERE b.workflow_definition_id = d.id AND b.by_definition AND b.event_type IS DISTINCT FROM d.rule ->> 'type')
INSERT INTO forebay.event_binding AS b (id, workspace_id, event_type, workflow_definition_id, by_definition, filter, input, workflow_id, lease_s)
SELECT $2::uuid, d.workspace_id, d.rule ->> 'type', d.id, true, d.rule ->> 'filter', d.rule -> 'input', d.rule ->> 'workflow_id',
       coalesce((d.rule ->> 'lease_s')::int, 900)
FROM d WHERE d.rule IS NOT NULL
ON CONFLICT (event_type, workspace_id) DO UPDATE
SET filter = excluded.filter, input = excluded.input, workflow_id = excluded.workflow_id, lease_s = excluded.lease_s,
    updated_at = clock_timestamp()
WHERE b.workflow_definition_id = excluded.workflow_definition_id AND b.by_definition
RETURNING b.id
