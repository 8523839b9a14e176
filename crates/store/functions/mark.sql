-- The marks of workspaces (forebay.claim_mark): from where a claim reads the slots and the ready items. So its cost
-- does not grow with the index entries of ended items that an open snapshot keeps. docs/explanation/admission.md argues
-- that the count of slots stays exact.

-- The average number of claimed items between two moves of a workspace's mark. If each claim moved it, claims would
-- have to read past the dead versions of the mark instead.
CREATE OR REPLACE FUNCTION forebay_r1.claims_per_mark() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 250';

-- The maximum number of older claims whose slots a mark lists. A claim probes each of them.
CREATE OR REPLACE FUNCTION forebay_r1.known_per_mark() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 64';

-- How far ready_from stays behind the clock. A start that commits later than this after its arrival may be below the
-- mark; sql/execution_queue/sweep.sql finds it.
CREATE OR REPLACE FUNCTION forebay_r1.mark_lag_ms() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 250';

-- The rank that an item got when it arrived. Since then, it may have become ready below the mark, and been moved up to
-- it (functions/shared/unblock.sql).
CREATE OR REPLACE FUNCTION forebay_r1.own_rank(p_created timestamptz, p_priority smallint) RETURNS bigint
LANGUAGE sql STABLE AS $fn$
    SELECT (extract(epoch FROM p_created) * 1000)::bigint
         + (p_priority - forebay.default_priority()) * forebay.priority_step_ms()
$fn$;

-- The items of a workspace that hold a slot: those with a claim_number. p_after and p_known are its mark's, null if it
-- has none.
CREATE OR REPLACE FUNCTION forebay_r1.holders(p_shard smallint, p_workspace uuid, p_after bigint, p_known bigint[])
RETURNS TABLE (definition_id uuid, key text, claim_number bigint)
LANGUAGE sql STABLE AS $fn$
    SELECT holder.workflow_definition_id, holder.concurrency_key, holder.claim_number
      FROM forebay.execution_queue holder
     WHERE holder.shard = p_shard AND holder.workspace_id = p_workspace
       AND holder.claim_number > coalesce(p_after, 0)
    UNION ALL
    SELECT holder.workflow_definition_id, holder.concurrency_key, holder.claim_number
      FROM unnest(p_known) AS known(number)
     -- OFFSET 0: always a probe of one number, never a scan of all slots.
     CROSS JOIN LATERAL (SELECT *
                           FROM forebay.execution_queue item
                          WHERE item.shard = p_shard AND item.workspace_id = p_workspace
                            AND item.claim_number = known.number
                         OFFSET 0) holder
$fn$;

-- Moves the mark of a workspace, for the claim with this number, which still holds the shard's lock. slots_after
-- becomes the last number before the claim's own, and slots_known the numbers up to there that still hold slots. If
-- those are too many, slots_after becomes the last number before the smallest of them. As later claims draw greater
-- numbers, a slot up to slots_after can only be freed. ready_from becomes the first ready item's rank.
--
-- The mark's row is locked before the items are read. So the probe (sql/execution_queue/sweep.sql) has either lowered
-- the mark already, and this function sees the item that it found, or does so later. If the probe holds the row, the
-- mark stays where it is.
CREATE OR REPLACE FUNCTION forebay_r1.move_mark(p_workspace uuid, p_number bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
DECLARE
    v_shard CONSTANT smallint := forebay.shard_of(p_workspace)::smallint;
    v_newest CONSTANT bigint := (extract(epoch FROM p_now) * 1000)::bigint - forebay_r1.mark_lag_ms();
    v_mark forebay.claim_mark;
    v_known bigint[];
BEGIN
    INSERT INTO forebay.claim_mark (workspace_id) VALUES (p_workspace) ON CONFLICT DO NOTHING;
    SELECT * INTO v_mark
      FROM forebay.claim_mark
     WHERE claim_mark.workspace_id = p_workspace
       FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_known := ARRAY(SELECT DISTINCT holder.claim_number
                       FROM forebay_r1.holders(v_shard, p_workspace, v_mark.slots_after, v_mark.slots_known) holder
                      WHERE holder.claim_number < p_number
                      ORDER BY holder.claim_number);
    UPDATE forebay.claim_mark
       SET slots_after = CASE WHEN cardinality(v_known) > forebay_r1.known_per_mark() THEN v_known[1]
                              ELSE p_number END - 1,
           slots_known = CASE WHEN cardinality(v_known) > forebay_r1.known_per_mark() THEN '{}' ELSE v_known END,
           ready_from = ARRAY(
               SELECT greatest(v_mark.ready_from[level.priority], least(
                          v_newest + (level.priority - forebay.default_priority()) * forebay.priority_step_ms(),
                          (SELECT min(item.rank) FROM forebay.execution_queue item
                            WHERE item.shard = v_shard AND item.workspace_id = p_workspace
                              AND item.stage = forebay.stage_ready() AND item.priority = level.priority
                              AND item.rank >= v_mark.ready_from[level.priority])))
                 FROM generate_series(1, 5) AS level(priority)
                ORDER BY level.priority)
     WHERE claim_mark.workspace_id = p_workspace;
END $fn$;
