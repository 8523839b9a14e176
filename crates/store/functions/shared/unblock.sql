-- Lets items that wait for a key or a definition with room reach the ready index. A routing hint,
-- never the fence: too many opened are moved aside again by the claim, too few are found by the
-- next completion or sweep. p_keys holds null for a definition. Returns the workspaces to ask.
--
-- Keys first. An item whose key has room, but whose definition has a limit or is paused, goes on to
-- wait for its definition, where the next end finds it whatever its key; until then it takes its
-- key's room. Ready items are thereby no more than the limits let start. What waits for a deleted
-- definition is let through nowhere: it is failed where it stands.
CREATE OR REPLACE FUNCTION forebay.unblock(p_workspaces uuid[], p_definitions uuid[], p_keys text[])
RETURNS SETOF uuid LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
DECLARE
    v_through_key record;
BEGIN
    WITH keys AS MATERIALIZED (
        SELECT DISTINCT asked.workspace_id, asked.definition_id, asked.key,
               forebay.shard_of(asked.workspace_id)::smallint AS shard
          FROM unnest(p_workspaces, p_definitions, p_keys) AS asked(workspace_id, definition_id, key)
         WHERE asked.key IS NOT NULL),
    chosen AS MATERIALIZED (
        SELECT next.id, definition.concurrency IS NOT NULL OR definition.status <> 'ACTIVE' AS limited
          FROM keys
          JOIN forebay.workflow_definition definition ON definition.id = keys.definition_id
               AND definition.deleted_at IS NULL
         CROSS JOIN LATERAL (
            SELECT waiting.id FROM forebay.execution_queue waiting
             WHERE waiting.shard = keys.shard AND waiting.workspace_id = keys.workspace_id
               AND waiting.workflow_definition_id = keys.definition_id AND waiting.concurrency_key = keys.key
               AND waiting.stage = forebay.stage_waits_for_key()
             ORDER BY waiting.rank, waiting.id
             LIMIT greatest(definition.key_concurrency - (
                SELECT count(*) FROM forebay.execution_queue through
                 WHERE through.stage IN (forebay.stage_ready(), forebay.stage_waits_for_definition(),
                                         forebay.stage_slot())
                   AND through.workspace_id = keys.workspace_id AND through.workflow_definition_id = keys.definition_id
                   AND through.concurrency_key = keys.key), 0)
             FOR UPDATE SKIP LOCKED) next),
    moved AS (
        UPDATE forebay.execution_queue queued
           SET stage = CASE WHEN chosen.limited THEN forebay.stage_waits_for_definition() ELSE forebay.stage_ready() END
          FROM chosen WHERE queued.id = chosen.id AND queued.status = 'PENDING'
        RETURNING queued.workspace_id, queued.workflow_definition_id, chosen.limited)
    SELECT array_agg(DISTINCT moved.workspace_id) FILTER (WHERE NOT moved.limited) AS ready_in,
           array_agg(moved.workspace_id) FILTER (WHERE moved.limited) AS workspaces,
           array_agg(moved.workflow_definition_id) FILTER (WHERE moved.limited) AS definitions
      INTO v_through_key FROM moved;

    RETURN QUERY
    WITH definitions AS MATERIALIZED (
        SELECT DISTINCT asked.workspace_id, asked.definition_id, forebay.shard_of(asked.workspace_id)::smallint AS shard
          FROM (SELECT given.workspace_id, given.definition_id
                  FROM unnest(p_workspaces, p_definitions, p_keys) AS given(workspace_id, definition_id, key)
                 WHERE given.key IS NULL
                UNION ALL
                SELECT passed.workspace_id, passed.definition_id
                  FROM unnest(v_through_key.workspaces, v_through_key.definitions)
                       AS passed(workspace_id, definition_id)) asked),
    chosen AS MATERIALIZED (
        SELECT next.id FROM definitions asked
          JOIN forebay.workflow_definition definition
            ON definition.id = asked.definition_id AND definition.status = 'ACTIVE' AND definition.deleted_at IS NULL
         CROSS JOIN LATERAL (
            SELECT waiting.id FROM forebay.execution_queue waiting
             WHERE waiting.shard = asked.shard AND waiting.workspace_id = asked.workspace_id
               AND waiting.workflow_definition_id = asked.definition_id
               AND waiting.stage = forebay.stage_waits_for_definition()
             ORDER BY waiting.rank, waiting.id
             LIMIT CASE WHEN definition.concurrency IS NULL THEN 1000 ELSE greatest(definition.concurrency - (
                SELECT count(*) FROM forebay.execution_queue through
                 WHERE through.gated AND through.stage IN (forebay.stage_ready(), forebay.stage_slot())
                   AND through.workspace_id = asked.workspace_id
                   AND through.workflow_definition_id = asked.definition_id) - (
                -- Those that took their slot before the limit came.
                SELECT count(*) FROM forebay.execution_queue holder
                 WHERE holder.shard = asked.shard AND holder.workspace_id = asked.workspace_id
                   AND holder.stage = forebay.stage_slot()
                   AND holder.workflow_definition_id = asked.definition_id AND NOT holder.gated), 0) END
             FOR UPDATE SKIP LOCKED) next),
    moved AS (
        UPDATE forebay.execution_queue queued SET stage = forebay.stage_ready()
          FROM chosen WHERE queued.id = chosen.id AND queued.status = 'PENDING'
        RETURNING queued.workspace_id)
    SELECT moved.workspace_id FROM moved UNION SELECT unnest(v_through_key.ready_in);
END $fn$;
