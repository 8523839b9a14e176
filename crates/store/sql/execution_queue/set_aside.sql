-- Moves ready items of a definition that may not start out of the ready index, a bounded number at
-- a time: a paused or lowered definition's backlog must cost the claim nothing. Only while it is
-- still paused, limited or deleted. $3, $4: only before this rank and id; $5, $6: and not before this one.
--
-- From the last to the first: what is moved leaves dead entries in the ready index until a vacuum,
-- and a claim starts at the head. Moved from the head they were a wall that every claim of the shard
-- had to climb; from the end it meets none, nor any row that this statement has locked.
WITH p AS MATERIALIZED (
    SELECT q.id FROM forebay.execution_queue q
     WHERE q.shard = forebay.shard_of($1::uuid)::smallint AND q.workspace_id = $1::uuid AND q.stage = forebay.stage_ready()
       AND q.workflow_definition_id = $2::uuid
       AND (q.rank, q.id) < ($3::bigint, $4::uuid) AND (q.rank, q.id) >= ($5::bigint, $6::uuid)
       AND EXISTS (SELECT 1 FROM forebay.workflow_definition d WHERE d.id = $2::uuid
                      AND (d.status <> 'ACTIVE' OR d.concurrency IS NOT NULL OR d.deleted_at IS NOT NULL))
     ORDER BY q.rank DESC, q.id DESC LIMIT 1000 FOR UPDATE SKIP LOCKED)
UPDATE forebay.execution_queue q SET stage = forebay.stage_waits_for_definition(), gated = true FROM p WHERE q.id = p.id AND q.status = 'PENDING'
RETURNING q.rank, q.id
