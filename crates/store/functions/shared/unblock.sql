-- Moves items to the ready stage that are blocked by a key or a definition that has room again. This function guards no
-- limit: the claim does. If it moves too many items, the claim blocks them again. If it moves too few, the next
-- completion or sweep moves them. The array p_keys has null where a definition, not a key, has room. Returns the
-- workspaces to claim for.
--
-- Keys come first. If the key of an item has room, but its definition is limited or paused, the item moves on to wait
-- for its definition. From then on it counts against its key, and the next end of an execution of that definition finds
-- it. So no more items are ready than the limits allow to run. Items of a deleted definition are not moved: they are
-- failed where they are.
--
-- An item that becomes ready gets at least the rank from which claims read (forebay.claim_mark), as no claim would see
-- it below. It is then still the first of its priority.
CREATE OR REPLACE FUNCTION forebay.unblock(p_workspaces uuid[], p_definitions uuid[], p_keys text[])
RETURNS SETOF uuid LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
DECLARE
    v_through_key record;
BEGIN
    WITH keys AS MATERIALIZED (
        SELECT requested.*, forebay.shard_of(requested.workspace_id)::smallint AS shard,
               (SELECT mark.ready_from
                  FROM forebay.claim_mark mark
                 WHERE mark.workspace_id = requested.workspace_id) AS ready_from
          FROM (SELECT DISTINCT given.workspace_id, given.definition_id, given.key
                  FROM unnest(p_workspaces, p_definitions, p_keys) AS given(workspace_id, definition_id, key)
                 WHERE given.key IS NOT NULL) requested),
    chosen AS MATERIALIZED (
        SELECT next.id, keys.ready_from, definition.concurrency IS NOT NULL OR definition.status <> 'ACTIVE' AS limited
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
           SET stage = CASE WHEN chosen.limited THEN forebay.stage_waits_for_definition()
                            ELSE forebay.stage_ready() END,
               rank = CASE WHEN chosen.limited THEN queued.rank
                           ELSE greatest(queued.rank, chosen.ready_from[queued.priority]) END
          FROM chosen WHERE queued.id = chosen.id AND queued.status = 'PENDING'
        RETURNING queued.workspace_id, queued.workflow_definition_id, chosen.limited)
    SELECT array_agg(DISTINCT moved.workspace_id) FILTER (WHERE NOT moved.limited) AS ready_in,
           array_agg(moved.workspace_id) FILTER (WHERE moved.limited) AS workspaces,
           array_agg(moved.workflow_definition_id) FILTER (WHERE moved.limited) AS definitions
      INTO v_through_key FROM moved;

    RETURN QUERY
    WITH definitions AS MATERIALIZED (
        SELECT requested.*, forebay.shard_of(requested.workspace_id)::smallint AS shard,
               (SELECT mark.ready_from
                  FROM forebay.claim_mark mark
                 WHERE mark.workspace_id = requested.workspace_id) AS ready_from
          FROM (SELECT given.workspace_id, given.definition_id
                  FROM unnest(p_workspaces, p_definitions, p_keys) AS given(workspace_id, definition_id, key)
                 WHERE given.key IS NULL
                UNION
                SELECT passed.workspace_id, passed.definition_id
                  FROM unnest(v_through_key.workspaces, v_through_key.definitions)
                       AS passed(workspace_id, definition_id)) requested),
    chosen AS MATERIALIZED (
        SELECT next.id, requested.ready_from FROM definitions requested
          JOIN forebay.workflow_definition definition
            ON definition.id = requested.definition_id AND definition.status = 'ACTIVE'
           AND definition.deleted_at IS NULL
         CROSS JOIN LATERAL (
            SELECT waiting.id FROM forebay.execution_queue waiting
             WHERE waiting.shard = requested.shard AND waiting.workspace_id = requested.workspace_id
               AND waiting.workflow_definition_id = requested.definition_id
               AND waiting.stage = forebay.stage_waits_for_definition()
             ORDER BY waiting.rank, waiting.id
             LIMIT CASE WHEN definition.concurrency IS NULL THEN 1000 ELSE greatest(definition.concurrency - (
                SELECT count(*) FROM forebay.execution_queue through
                 WHERE through.limited AND through.stage IN (forebay.stage_ready(), forebay.stage_slot())
                   AND through.workspace_id = requested.workspace_id
                   AND through.workflow_definition_id = requested.definition_id) - (
                -- Items that got their slot before the limit existed are not flagged `limited`, so they are subtracted
                -- too.
                SELECT count(*) FROM forebay.execution_queue holder
                 WHERE holder.shard = requested.shard AND holder.workspace_id = requested.workspace_id
                   AND holder.claim_number IS NOT NULL
                   AND holder.workflow_definition_id = requested.definition_id AND NOT holder.limited), 0) END
             FOR UPDATE SKIP LOCKED) next),
    moved AS (
        UPDATE forebay.execution_queue queued
           SET stage = forebay.stage_ready(), rank = greatest(queued.rank, chosen.ready_from[queued.priority])
          FROM chosen WHERE queued.id = chosen.id AND queued.status = 'PENDING'
        RETURNING queued.workspace_id)
    SELECT moved.workspace_id FROM moved UNION SELECT unnest(v_through_key.ready_in);
END $fn$;
