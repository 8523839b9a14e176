-- The hook of a definition as its published version has it; its token stays.
WITH d AS (
    SELECT d.id, d.workspace_id, v.graph #> '{on,webhook}' AS rule
    FROM forebay.workflow_definition d
    JOIN forebay.workflow_definition_version v ON v.id = d.published_version
    WHERE d.id = $1::uuid),
gone AS (DELETE FROM forebay.hook h USING d WHERE h.workflow_definition_id = d.id AND d.rule IS NULL)
INSERT INTO forebay.hook AS h (id, workspace_id, workflow_definition_id, rule)
SELECT $2::uuid, d.workspace_id, d.id, d.rule FROM d WHERE d.rule IS NOT NULL
ON CONFLICT (workflow_definition_id) DO UPDATE SET rule = excluded.rule, updated_at = clock_timestamp()
WHERE h.rule <> excluded.rule
