-- Adds or changes the trigger of a definition, as its published version declares it; its token stays. Deletes the
-- trigger if that version declares none.
WITH published AS (
    SELECT definition.id, definition.workspace_id, version.graph #> '{on,http}' AS rule
    FROM forebay.workflow_definition definition
    JOIN forebay.workflow_definition_version version ON version.id = definition.published_version
    WHERE definition.id = $1::uuid),
gone AS (
    DELETE FROM forebay.trigger USING published
    WHERE trigger.workflow_definition_id = published.id AND published.rule IS NULL)
INSERT INTO forebay.trigger (id, workspace_id, workflow_definition_id, rule)
SELECT $2::uuid, published.workspace_id, published.id, published.rule FROM published WHERE published.rule IS NOT NULL
ON CONFLICT (workflow_definition_id) DO UPDATE SET rule = excluded.rule, updated_at = clock_timestamp()
WHERE trigger.rule <> excluded.rule
