-- Deletes records that ended long ago, one bounded slice per call. Every slice is one commit, and a walk resumes where
-- its last slice ended.
--
-- An execution's own row is deleted first, so that nobody ever reads or reruns half an execution. Rows of other tables
-- that belong to it are deleted in the same slice, up to the slice's bound. If some may remain, the execution is
-- recorded in retired_execution, and later slices delete them, also after a crash.

-- Deletes at most p_rows rows that belong to these executions. Returns how many more it could have deleted. If it
-- returns 0, some rows may remain.
CREATE OR REPLACE FUNCTION forebay_r1.retire_rows(p_ids uuid[], p_rows int) RETURNS int LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
DECLARE
    v_left int := p_rows;
    v_gone int;
BEGIN
    DELETE FROM forebay.workflow_execution_node node
     WHERE node.ctid = ANY (ARRAY(SELECT found.ctid
                                    FROM forebay.workflow_execution_node found
                                   WHERE found.execution_id = ANY (p_ids)
                                   LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_left := v_left - v_gone;
    DELETE FROM forebay.workflow_execution_wait wait
     WHERE wait.ctid = ANY (ARRAY(SELECT found.ctid
                                    FROM forebay.workflow_execution_wait found
                                   WHERE found.execution_id = ANY (p_ids)
                                   LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_left := v_left - v_gone;
    DELETE FROM forebay.workflow_execution_token token
     WHERE token.ctid = ANY (ARRAY(SELECT found.ctid
                                     FROM forebay.workflow_execution_token found
                                    WHERE found.execution_id = ANY (p_ids)
                                    LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_left := v_left - v_gone;
    DELETE FROM forebay.workflow_execution_candidate candidate
     WHERE candidate.ctid = ANY (ARRAY(SELECT found.ctid
                                         FROM forebay.workflow_execution_candidate found
                                        WHERE found.execution_id = ANY (p_ids)
                                        LIMIT v_left));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    RETURN v_left - v_gone;
END $fn$;

-- Does any row that belongs to this deleted execution remain?
CREATE OR REPLACE FUNCTION forebay_r1.retire_remains(p_id uuid) RETURNS boolean
LANGUAGE sql STABLE SET enable_seqscan = off AS $fn$
    SELECT EXISTS (SELECT 1 FROM forebay.workflow_execution_node node WHERE node.execution_id = p_id)
        OR EXISTS (SELECT 1 FROM forebay.workflow_execution_wait wait WHERE wait.execution_id = p_id)
        OR EXISTS (SELECT 1 FROM forebay.workflow_execution_token token WHERE token.execution_id = p_id)
        OR EXISTS (SELECT 1 FROM forebay.workflow_execution_candidate candidate WHERE candidate.execution_id = p_id)
$fn$;

-- Reads the next p_scan executions by id after p_from. Deletes those that ended more than p_age_s ago, with at most
-- p_rows rows of other tables. Returns the id to continue after; null: the walk is complete.
--
-- The walk goes through the ids in order, oldest first. An id begins with the creation time, and an execution cannot
-- end before it was created. So the walk stops at ids of p_age_s ago, and needs no index by end time, which every end
-- of an execution would have to maintain. Not deleted are open executions, executions that were created with an
-- idempotency key in the last p_keys_kept_s, and roots with an open descendant. Once its root is deleted, a descendant
-- is deleted even if it ended recently. Its id is greater than the root's, so this walk or a later one reaches it.
CREATE OR REPLACE FUNCTION forebay_r1.retire_executions(
    p_age_s float8, p_keys_kept_s float8, p_from uuid, p_scan int, p_rows int)
RETURNS TABLE (next uuid, retired bigint) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
DECLARE
    v_old timestamptz := clock_timestamp() - make_interval(secs => p_age_s);
    v_before uuid := (lpad(to_hex((extract(epoch FROM v_old) * 1000)::bigint), 12, '0')
        || '00000000000000000000')::uuid;
    v_ids uuid[] := ARRAY(SELECT retired.id FROM forebay.retired_execution retired ORDER BY retired.id LIMIT 100);
    v_roots uuid[];
    v_scanned uuid[];
    v_left int;
BEGIN
    IF v_ids <> '{}' THEN
        v_left := forebay_r1.retire_rows(v_ids, p_rows);
        DELETE FROM forebay.retired_execution retired
         WHERE retired.id = ANY (v_ids) AND (v_left > 0 OR NOT forebay_r1.retire_remains(retired.id));
        RETURN QUERY SELECT p_from, 0::bigint;
        RETURN;
    END IF;
    -- The descendants of a root are read too, so they count: one call reads about p_rows executions, and always at
    -- least one whole tree.
    v_scanned := ARRAY(
        SELECT scanned.id FROM (
            SELECT executions.id,
                   sum(1 + executions.descendants) OVER (ORDER BY executions.id) - executions.descendants AS rows_read
              FROM (SELECT execution.id, execution.descendants FROM forebay.workflow_execution execution
                     WHERE execution.id > p_from AND execution.id < v_before
                     ORDER BY execution.id
                     LIMIT p_scan) executions) scanned
         WHERE scanned.rows_read <= p_rows ORDER BY scanned.id);
    IF v_scanned = '{}' THEN
        RETURN QUERY SELECT NULL::uuid, 0::bigint;
        RETURN;
    END IF;
    v_roots := ARRAY(
        SELECT execution.id FROM forebay.workflow_execution execution
         WHERE execution.id = ANY (v_scanned) AND execution.parent IS NULL AND execution.completed_at < v_old
           AND (execution.idempotency_key IS NULL
                OR execution.created_at < clock_timestamp() - make_interval(secs => p_keys_kept_s))
           AND NOT EXISTS (SELECT 1
                             FROM forebay.workflow_execution descendant
                            WHERE descendant.root = execution.id AND descendant.depth > 0
                              AND descendant.completed_at IS NULL)
         ORDER BY execution.id FOR UPDATE SKIP LOCKED);
    v_ids := v_roots || ARRAY(
        SELECT descendant.id FROM forebay.workflow_execution descendant
         WHERE descendant.id = ANY (v_scanned) AND descendant.parent IS NOT NULL AND descendant.completed_at IS NOT NULL
           AND (descendant.root = ANY (v_roots)
                OR NOT EXISTS (SELECT 1 FROM forebay.workflow_execution root WHERE root.id = descendant.root))
         ORDER BY descendant.id FOR UPDATE SKIP LOCKED);
    DELETE FROM forebay.execution_queue item WHERE item.id = ANY (v_ids) AND item.status = 'FAILED';
    WITH retired AS (
        DELETE FROM forebay.workflow_execution execution WHERE execution.id = ANY (v_ids)
        RETURNING execution.workspace_id, execution.status, execution.id)
    DELETE FROM forebay.execution_outcome outcome USING retired
     WHERE outcome.workspace_id = retired.workspace_id AND outcome.status = retired.status
       AND outcome.execution_id = retired.id;
    IF forebay_r1.retire_rows(v_ids, p_rows) = 0 THEN
        INSERT INTO forebay.retired_execution (id)
        SELECT deleted.id FROM unnest(v_ids) AS deleted(id) WHERE forebay_r1.retire_remains(deleted.id)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY SELECT v_scanned[cardinality(v_scanned)], cardinality(v_ids)::bigint;
END $fn$;

-- Reads the next p_scan jobs with status p_status, oldest first, and deletes those that ended more than p_age_s ago and
-- will not be retried. Returns the position to continue after. Returns no row if there are no more such jobs.
CREATE OR REPLACE FUNCTION forebay_r1.retire_jobs(
    p_age_s float8, p_status text, p_from_at timestamptz, p_from_id uuid, p_scan int)
RETURNS TABLE (at timestamptz, id uuid, retired bigint) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_old timestamptz := clock_timestamp() - make_interval(secs => p_age_s);
    v_ids uuid[];
    v_last record;
    v_retired bigint;
BEGIN
    WITH scanned AS MATERIALIZED (
        SELECT projection.id, projection.created_at,
               coalesce(projection.completed_at, projection.failed_at) < v_old AND job.retry_from IS NULL AS due
          FROM public.workflow_queue_projection projection JOIN forebay.workflow_queue_job job ON job.id = projection.id
         WHERE projection.status = p_status AND projection.created_at < v_old AND projection.created_at >= p_from_at
           AND (projection.created_at, projection.id) > (p_from_at, p_from_id)
         ORDER BY projection.created_at, projection.id LIMIT p_scan)
    SELECT (array_agg(scanned.created_at ORDER BY scanned.created_at DESC, scanned.id DESC))[1] AS at,
           (array_agg(scanned.id ORDER BY scanned.created_at DESC, scanned.id DESC))[1] AS id,
           coalesce(array_agg(scanned.id) FILTER (WHERE scanned.due), '{}') AS due
      INTO v_last FROM scanned;
    IF v_last.id IS NULL THEN
        RETURN;
    END IF;
    v_ids := ARRAY(SELECT projection.id
                     FROM public.workflow_queue_projection projection
                    WHERE projection.id = ANY (v_last.due)
                    FOR UPDATE SKIP LOCKED);
    PERFORM set_config('forebay.projection', 'retention', true);
    DELETE FROM public.workflow_queue_projection projection
     WHERE projection.id = ANY (v_ids) AND projection.status = p_status;
    GET DIAGNOSTICS v_retired = ROW_COUNT;
    PERFORM set_config('forebay.projection', '', true);
    RETURN QUERY SELECT v_last.at, v_last.id, v_retired;
END $fn$;
