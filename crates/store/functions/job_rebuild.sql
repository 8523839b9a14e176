-- Compares workflow_queue_projection with its facts, and rebuilds it from them.

-- The rows of workflow_queue_projection computed from their facts. The first fact of each job has the constant columns,
-- the last fact has all other columns.
CREATE OR REPLACE FUNCTION forebay_r1.folded_jobs() RETURNS SETOF public.workflow_queue_projection
LANGUAGE sql STABLE AS $fn$
    SELECT (jsonb_populate_record(NULL::public.workflow_queue_projection,
        coalesce(jsonb_build_object('event_data', event.event_data), '{}') || first.event_data || last.event_data)).*
      FROM (SELECT DISTINCT ON (fact.stream_id) fact.stream_id, fact.event_type, fact.event_data
              FROM public.domain_events fact
             WHERE fact.stream_type = 'workflow_queue' ORDER BY fact.stream_id, fact.stream_version DESC) last
      JOIN public.domain_events first ON first.stream_id = last.stream_id AND first.stream_type = 'workflow_queue'
           AND first.stream_version = 1
      LEFT JOIN LATERAL forebay.event_of((first.event_data ->> 'event_id')::uuid,
           coalesce((first.event_metadata ->> 'event_workspace_id')::uuid, first.workspace_id),
           (first.event_data ->> 'stream_id')::uuid, first.event_data ->> 'stream_type',
           first.event_data ->> 'event_type') event ON true
     WHERE last.event_type <> 'workflow.queue.retired'
$fn$;

-- How workflow_queue_projection differs from its facts: missing (facts without a row), extra (a row without facts),
-- changed.
CREATE OR REPLACE FUNCTION forebay_r1.differing_jobs() RETURNS TABLE (id uuid, how text) LANGUAGE sql STABLE AS $fn$
    SELECT coalesce(folded.id, projection.id),
           CASE WHEN projection.id IS NULL THEN 'missing' WHEN folded.id IS NULL THEN 'extra' ELSE 'changed' END
      FROM forebay_r1.folded_jobs() folded
      FULL JOIN public.workflow_queue_projection projection ON projection.id = folded.id
     WHERE projection.id IS NULL OR folded.id IS NULL OR folded IS DISTINCT FROM projection
$fn$;

-- Rebuilds workflow_queue_projection from its facts, and returns what differed. The table is locked against other
-- writers; only differing rows are written.
CREATE OR REPLACE FUNCTION forebay_r1.rebuild_jobs() RETURNS TABLE (id uuid, how text) LANGUAGE plpgsql AS $fn$
#variable_conflict use_column
DECLARE
    v_found record;
BEGIN
    LOCK TABLE public.workflow_queue_projection IN SHARE ROW EXCLUSIVE MODE;
    PERFORM set_config('forebay.projection', 'rebuild', true);
    SELECT coalesce(array_agg(differing.id), '{}') AS ids, coalesce(array_agg(differing.how), '{}') AS hows
      INTO v_found
      FROM forebay_r1.differing_jobs() differing;
    DELETE FROM public.workflow_queue_projection projection WHERE projection.id = ANY (v_found.ids);
    INSERT INTO public.workflow_queue_projection
    SELECT folded.* FROM forebay_r1.folded_jobs() folded WHERE folded.id = ANY (v_found.ids);
    DELETE FROM forebay.workflow_queue_job job
     WHERE job.id = ANY (v_found.ids)
       AND NOT EXISTS (SELECT 1 FROM public.workflow_queue_projection projection WHERE projection.id = job.id);
    -- Rows of workflow_queue_job that were lost are made from the facts. A processing job gets a claim as if by plain
    -- SQL.
    INSERT INTO forebay.workflow_queue_job (id, event_type, event_id, event_workspace_id, workspace_id, version,
                                            pending_since, claimed_via, lease_until, retry_from)
    SELECT projection.id, projection.event_type, projection.event_id, event.workspace_id, last.workspace_id,
           last.stream_version, CASE WHEN projection.status = 'pending' THEN projection.updated_at END,
           CASE WHEN projection.status = 'processing' THEN 'sql' END,
           CASE WHEN projection.status = 'processing'
                THEN greatest(projection.claimed_at, projection.updated_at)
                     + make_interval(secs => forebay.default_job_lease_s()) END,
           CASE WHEN projection.status = 'failed' AND projection.retry_count < forebay.max_job_failures()
                THEN projection.failed_at END
      FROM public.workflow_queue_projection projection
     CROSS JOIN LATERAL (SELECT fact.workspace_id, fact.stream_version, fact.event_metadata
                           FROM public.domain_events fact
                          WHERE fact.stream_id = projection.id AND fact.stream_type = 'workflow_queue'
                          ORDER BY fact.stream_version DESC
                          LIMIT 1) last
      LEFT JOIN LATERAL forebay.event_of(projection.event_id,
           coalesce((last.event_metadata ->> 'event_workspace_id')::uuid, last.workspace_id), projection.stream_id,
           projection.stream_type, projection.event_type) event ON true
     WHERE projection.id = ANY (v_found.ids)
    ON CONFLICT (id) DO NOTHING;
    PERFORM set_config('forebay.projection', '', true);
    RETURN QUERY SELECT * FROM unnest(v_found.ids, v_found.hows);
END $fn$;
