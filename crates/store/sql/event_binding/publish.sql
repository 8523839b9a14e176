-- Replaces a definition's binding by the binding of its published version, or deletes it if that version binds no
-- event. A definition in the workspace named `platform` binds events of all workspaces. If the event type stays the
-- same, the binding keeps its row, and therefore its pending jobs.
WITH published AS (
    SELECT definition.id, CASE WHEN workspace.name = 'platform' THEN NULL ELSE workspace.id END AS workspace_id,
           version.graph #> '{on,event}' AS rule
    FROM forebay.workflow_definition definition
    JOIN forebay.workspace ON workspace.id = definition.workspace_id
    JOIN forebay.workflow_definition_version version ON version.id = definition.published_version
    WHERE definition.id = $1::uuid),
gone AS (
    DELETE FROM forebay.event_binding binding USING published
    WHERE binding.workflow_definition_id = published.id AND binding.by_definition
      AND binding.event_type IS DISTINCT FROM published.rule ->> 'type')
INSERT INTO forebay.event_binding AS binding (id, workspace_id, event_type, workflow_definition_id, by_definition,
                                              filter, input, workflow_id, lease_s)
SELECT $2::uuid, published.workspace_id, published.rule ->> 'type', published.id, true, published.rule ->> 'filter',
       published.rule -> 'input', published.rule ->> 'workflow_id',
       coalesce((published.rule ->> 'lease_s')::int, forebay.default_job_lease_s())
FROM published WHERE published.rule IS NOT NULL
ON CONFLICT (event_type, workspace_id) DO UPDATE
SET filter = excluded.filter, input = excluded.input, workflow_id = excluded.workflow_id, lease_s = excluded.lease_s,
    updated_at = clock_timestamp()
WHERE binding.workflow_definition_id = excluded.workflow_definition_id AND binding.by_definition
RETURNING binding.id
