-- Moves ready items of a definition that may not start out of the ready index, a bounded number at
-- a time: a paused or lowered definition's backlog must cost the claim nothing. $3: also those that
-- were let through its gate (it is paused). $4, $5: only before this rank and id; $6, $7: and not
-- before this one.
--
-- From the last to the first: what is moved leaves dead entries in the ready index until a vacuum,
-- and a claim starts at the head. Moved from the head they were a wall that every claim of the shard
-- had to climb; from the end it meets none, nor any row that this statement has locked.
WITH p AS MATERIALIZED (
    SELECT q.id FROM execution_queue q
     WHERE q.shard = (get_byte(uuid_send($1::uuid), 15) & 63)::smallint AND q.workspace_id = $1::uuid AND q.stage = 0
       AND q.workflow_definition_id = $2::uuid AND (NOT q.gated OR $3::boolean)
       AND (q.rank, q.id) < ($4::bigint, $5::uuid) AND (q.rank, q.id) >= ($6::bigint, $7::uuid)
     ORDER BY q.rank DESC, q.id DESC LIMIT 1000 FOR UPDATE SKIP LOCKED)
UPDATE execution_queue q SET stage = 3, gated = true FROM p WHERE q.id = p.id AND q.status = 'PENDING'
RETURNING q.rank, q.id
