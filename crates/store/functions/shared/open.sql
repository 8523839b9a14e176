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
    k record;
BEGIN
    WITH t AS MATERIALIZED (
        SELECT DISTINCT u.ws, u.def, u.key, forebay.shard_of(u.ws)::smallint AS shard
          FROM unnest(p_workspaces, p_definitions, p_keys) AS u(ws, def, key) WHERE u.key IS NOT NULL),
    p AS MATERIALIZED (
        SELECT j.id, d.concurrency IS NOT NULL OR d.status <> 'ACTIVE' AS limited
          FROM t JOIN forebay.workflow_definition d ON d.id = t.def AND d.deleted_at IS NULL
         CROSS JOIN LATERAL (
            SELECT q.id FROM forebay.execution_queue q
             WHERE q.shard = t.shard AND q.workspace_id = t.ws AND q.workflow_definition_id = t.def
               AND q.concurrency_key = t.key AND q.stage = 2
             ORDER BY q.rank, q.id
             LIMIT greatest(d.key_concurrency - (
                SELECT count(*) FROM forebay.execution_queue r
                 WHERE r.stage IN (0, 3, 5) AND r.workspace_id = t.ws
                   AND r.workflow_definition_id = t.def AND r.concurrency_key = t.key), 0)
             FOR UPDATE SKIP LOCKED) j),
    o AS (
        UPDATE forebay.execution_queue q SET stage = CASE WHEN p.limited THEN 3 ELSE 0 END
          FROM p WHERE q.id = p.id AND q.status = 'PENDING'
        RETURNING q.workspace_id, q.workflow_definition_id, p.limited)
    SELECT array_agg(DISTINCT o.workspace_id) FILTER (WHERE NOT o.limited) AS opened,
           array_agg(o.workspace_id) FILTER (WHERE o.limited) AS ws,
           array_agg(o.workflow_definition_id) FILTER (WHERE o.limited) AS def
      INTO k FROM o;

    RETURN QUERY
    WITH t AS MATERIALIZED (
        SELECT DISTINCT u.ws, u.def, forebay.shard_of(u.ws)::smallint AS shard
          FROM (SELECT a.ws, a.def FROM unnest(p_workspaces, p_definitions, p_keys) AS a(ws, def, key) WHERE a.key IS NULL
                UNION ALL SELECT b.ws, b.def FROM unnest(k.ws, k.def) AS b(ws, def)) u),
    p AS MATERIALIZED (
        SELECT j.id FROM t JOIN forebay.workflow_definition d ON d.id = t.def AND d.status = 'ACTIVE' AND d.deleted_at IS NULL
         CROSS JOIN LATERAL (
            SELECT q.id FROM forebay.execution_queue q
             WHERE q.shard = t.shard AND q.workspace_id = t.ws AND q.workflow_definition_id = t.def AND q.stage = 3
             ORDER BY q.rank, q.id
             LIMIT CASE WHEN d.concurrency IS NULL THEN 1000 ELSE greatest(d.concurrency - (
                SELECT count(*) FROM forebay.execution_queue r
                 WHERE r.gated AND r.stage IN (0, 5) AND r.workspace_id = t.ws
                   AND r.workflow_definition_id = t.def) - (
                -- Those that took their slot before the limit came.
                SELECT count(*) FROM forebay.execution_queue r
                 WHERE r.shard = t.shard AND r.workspace_id = t.ws AND r.stage = 5
                   AND r.workflow_definition_id = t.def AND NOT r.gated), 0) END
             FOR UPDATE SKIP LOCKED) j),
    o AS (
        UPDATE forebay.execution_queue q SET stage = 0 FROM p WHERE q.id = p.id AND q.status = 'PENDING'
        RETURNING q.workspace_id)
    SELECT o.workspace_id FROM o UNION SELECT unnest(k.opened);
END $fn$;
