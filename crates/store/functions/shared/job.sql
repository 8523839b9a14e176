-- The life of a job: a row of workflow_queue_projection. The kernel's table (kernel::event) defines the legal steps. A
-- test tries every pair of statuses in the kernel and in job_guard, and compares the results.
--
-- Two session settings control the guard. forebay.projection: 'rebuild' writes rows unchanged, 'retention' may delete
-- rows. forebay.claim: the claim under which the transaction ends a job. Any session can set these. So
-- forebay.projection counts only for the owner of the tables and members of that role (is_owner). The same holds for
-- the claim of a job of the projector, because that claim is the execution's id, which other roles can read.
--
-- The triggers run with their owner's rights, so updating a row needs no right on other tables.

CREATE OR REPLACE FUNCTION forebay.refuse_job_change(p_message text, p_hint text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $fn$
BEGIN
    RAISE EXCEPTION '%', p_message || coalesce(': ' || p_hint, '')
        USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_move';
END $fn$;

-- Why a job cannot go from one status to another; null if it can. The table's CHECK refuses an unknown status.
CREATE OR REPLACE FUNCTION forebay.illegal_job_step(p_from text, p_to text, p_retries int) RETURNS text
LANGUAGE sql IMMUTABLE AS $fn$
    SELECT CASE
        WHEN p_to NOT IN ('pending', 'processing', 'completed', 'failed') THEN NULL
        WHEN p_from = p_to THEN NULL
        WHEN p_from = 'pending' AND p_to = 'processing' THEN NULL
        WHEN p_from = 'processing' THEN NULL
        WHEN p_from = 'failed' AND p_to = 'pending' AND p_retries < forebay.max_job_failures() THEN NULL
        WHEN p_from = 'failed' AND p_to = 'pending'
        THEN 'a job that failed ' || p_retries || ' times cannot be retried'
        WHEN p_from = 'pending' AND p_to = 'completed' THEN 'a pending job cannot be completed: claim it first'
        WHEN p_from = 'pending' THEN 'a pending job cannot be failed: claim it first'
        WHEN p_from = 'completed' THEN 'a completed job is final: it cannot become ' || p_to
        WHEN p_to = 'processing' THEN 'a failed job cannot be claimed: it is pending again when its retry is due'
        ELSE 'a failed job cannot be completed: it is pending again when its retry is due' END
$fn$;

-- The value of forebay.projection in a transaction of the tables' owner; null in any other transaction.
CREATE OR REPLACE FUNCTION forebay.job_mode() RETURNS text LANGUAGE sql STABLE AS $fn$
    SELECT CASE WHEN current_setting('forebay.projection', true) <> '' AND forebay.is_owner()
                THEN current_setting('forebay.projection', true) END
$fn$;

CREATE OR REPLACE FUNCTION forebay.job_guard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
    v_mode text := forebay.job_mode();
    v_why text;
    v_job forebay.workflow_queue_job;
BEGIN
    IF v_mode = 'rebuild' THEN
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NEW.status IN ('processing', 'completed', 'failed') OR NEW.retry_count <> 0 THEN
            PERFORM forebay.refuse_job_change('a new job must be pending', 'insert an event, or a pending row');
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF v_mode IS DISTINCT FROM 'retention' THEN
            PERFORM forebay.refuse_job_change('jobs are deleted by retention only', 'set retention.job_days');
        END IF;
        RETURN OLD;
    END IF;

    v_why := forebay.illegal_job_step(OLD.status, NEW.status, OLD.retry_count);
    IF v_why IS NOT NULL THEN
        PERFORM forebay.refuse_job_change(v_why);
    END IF;
    IF (OLD.id, OLD.event_id, OLD.event_type, OLD.event_data, OLD.stream_id, OLD.stream_type, OLD.created_at)
       IS DISTINCT FROM (NEW.id, NEW.event_id, NEW.event_type, NEW.event_data, NEW.stream_id, NEW.stream_type,
                         NEW.created_at) THEN
        PERFORM forebay.refuse_job_change('the event of a job cannot be changed');
    END IF;
    IF OLD.status = 'processing' THEN
        SELECT * INTO v_job FROM forebay.workflow_queue_job job WHERE job.id = OLD.id;
        IF NEW.status <> 'processing' AND v_job.claim_id IS NOT NULL
           AND (v_job.claim_id::text IS DISTINCT FROM current_setting('forebay.claim', true)
                OR v_job.claimed_via = 'projector' AND NOT forebay.is_owner()) THEN
            PERFORM forebay.refuse_job_change(format('job %s is claimed by %s', OLD.id, OLD.worker_id),
                                       'only the holder of its claim can end it');
        END IF;
    END IF;
    RETURN forebay.job_after_step(OLD, NEW);
END $fn$;

-- The row after a legal step: it has the columns of its new status, and no others.
CREATE OR REPLACE FUNCTION forebay.job_after_step(
    p_old public.workflow_queue_projection, p_new public.workflow_queue_projection)
RETURNS public.workflow_queue_projection LANGUAGE plpgsql AS $fn$
DECLARE
    v_given int := p_new.retry_count;
    v_before public.workflow_queue_projection := p_old;
BEGIN
    -- A client's clock may be ahead. That must not extend a lease.
    p_new.updated_at := CASE WHEN p_new.updated_at = p_old.updated_at THEN now()
                             ELSE least(p_new.updated_at, now()) END;
    p_new.retry_count := p_old.retry_count;
    IF p_new.status = 'processing' AND p_old.status = 'pending' THEN
        IF p_new.worker_id IS NULL THEN
            PERFORM forebay.refuse_job_change('a claim must name its worker', 'set worker_id');
        END IF;
        p_new.claimed_at := least(coalesce(p_new.claimed_at, now()), now());
    ELSIF p_new.status = 'pending' AND p_old.status <> 'pending' THEN
        p_new.worker_id := NULL;
        p_new.claimed_at := NULL;
        p_new.workflow_id := NULL;
        p_new.workflow_run_id := NULL;
        p_new.completed_at := NULL;
        p_new.failed_at := NULL;
        p_new.error_message := NULL;
        p_new.error_stack := NULL;
        p_new.result := NULL;
        -- A retry does not raise retry_count: the failure already did.
        RETURN p_new;
    ELSIF p_new.status = 'completed' AND p_old.status = 'processing' THEN
        p_new.completed_at := coalesce(p_new.completed_at, now());
    ELSIF p_new.status = 'failed' AND p_old.status = 'processing' THEN
        p_new.failed_at := coalesce(p_new.failed_at, now());
        p_new.retry_count := p_old.retry_count + 1;
        RETURN p_new;
    ELSIF p_new.status = p_old.status THEN
        v_before.updated_at := p_new.updated_at;
        IF p_new.status = 'processing' THEN
            IF p_new.worker_id IS DISTINCT FROM p_old.worker_id THEN
                PERFORM forebay.refuse_job_change(
                    format('a processing job cannot be claimed: %s holds it', p_old.worker_id));
            END IF;
            p_new.claimed_at := least(p_new.claimed_at, now());
            v_before.claimed_at := p_new.claimed_at;
            v_before.workflow_id := p_new.workflow_id;
            v_before.workflow_run_id := p_new.workflow_run_id;
        END IF;
        IF v_before IS DISTINCT FROM p_new THEN
            PERFORM forebay.refuse_job_change(format('a %s job cannot be changed', p_new.status),
                                       'only updated_at may change, as a heartbeat');
        END IF;
    END IF;
    IF v_given <> p_old.retry_count THEN
        PERFORM forebay.refuse_job_change('retry_count cannot be set', 'the queue counts failures itself');
    END IF;
    RETURN p_new;
END $fn$;

-- After a step: updates the job's row in workflow_queue_job, and appends the fact.
CREATE OR REPLACE FUNCTION forebay.job_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
    v_fact text;
    v_job forebay.workflow_queue_job;
BEGIN
    IF forebay.job_mode() = 'rebuild' THEN
        RETURN NULL;
    END IF;
    v_fact := CASE
        WHEN TG_OP = 'INSERT' THEN 'pending'
        WHEN TG_OP = 'DELETE' THEN 'retired'
        WHEN NEW.status = OLD.status THEN 'touched'
        WHEN NEW.status = 'processing' THEN 'claimed'
        WHEN NEW.status = 'pending' THEN CASE OLD.status WHEN 'failed' THEN 'retried' ELSE 'recovered' END
        ELSE NEW.status END;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM forebay.workflow_queue_job job WHERE job.id = OLD.id RETURNING * INTO v_job;
        v_job.version := coalesce(v_job.version, 0) + 1;
        PERFORM forebay.append_job_fact(OLD, v_fact, v_job);
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        -- A row that another program inserted also belongs to the workspace of its event, as in the change log. Its
        -- event is the first one with the row's event id, stream and type.
        INSERT INTO forebay.workflow_queue_job AS job (id, event_type, version, pending_since, event_id,
                                                       event_workspace_id, workspace_id)
        SELECT NEW.id, NEW.event_type, 1, NEW.created_at, NEW.event_id, event.workspace_id, workspace.id
          FROM (SELECT 1) one
          LEFT JOIN forebay.event_of(NEW.event_id, NULL, NEW.stream_id, NEW.stream_type, NEW.event_type) event ON true
          LEFT JOIN forebay.workspace ON workspace.id = event.workspace_id
        ON CONFLICT (id) DO UPDATE SET version = job.version + 1, event_type = excluded.event_type
        RETURNING * INTO v_job;
    ELSE
        v_job := forebay.update_job_row(OLD, NEW);
    END IF;
    PERFORM forebay.append_job_fact(NEW, v_fact, v_job);
    RETURN NULL;
END $fn$;

-- The row in workflow_queue_job of a changed job. A claim counts as made by plain SQL, until the function that made it
-- stores something else.
CREATE OR REPLACE FUNCTION forebay.update_job_row(
    p_old public.workflow_queue_projection, p_new public.workflow_queue_projection)
RETURNS forebay.workflow_queue_job LANGUAGE plpgsql AS $fn$
DECLARE
    v_job forebay.workflow_queue_job;
BEGIN
    IF p_new.status = 'processing' THEN
        UPDATE forebay.workflow_queue_job job
           SET version = job.version + 1, pending_since = NULL, due_at = NULL,
               claimed_via = coalesce(job.claimed_via, 'sql'),
               lease_until = CASE WHEN coalesce(job.claimed_via, 'sql') = 'sql'
                                  THEN greatest(p_new.claimed_at, p_new.updated_at) + make_interval(secs => job.lease_s)
                                  ELSE job.lease_until END
         WHERE job.id = p_new.id RETURNING * INTO v_job;
    ELSIF p_new.status = p_old.status THEN
        UPDATE forebay.workflow_queue_job job
           SET version = job.version + 1
         WHERE job.id = p_new.id
        RETURNING * INTO v_job;
    ELSIF p_new.status = 'pending' THEN
        UPDATE forebay.workflow_queue_job job
           SET version = job.version + 1, pending_since = now(), claimed_via = NULL, claim_id = NULL,
               lease_until = NULL,
               retry_from = NULL,
               due_at = (SELECT now()
                           FROM forebay.event_binding binding
                          WHERE binding.id = job.binding_id AND binding.workflow_definition_id IS NOT NULL)
         WHERE job.id = p_new.id RETURNING * INTO v_job;
    ELSE
        UPDATE forebay.workflow_queue_job job
           SET version = job.version + 1, claimed_via = NULL, lease_until = NULL,
               retry_from = CASE WHEN p_new.status = 'failed' AND p_new.retry_count < forebay.max_job_failures()
                                 THEN p_new.failed_at END
         WHERE job.id = p_new.id RETURNING * INTO v_job;
    END IF;
    RETURN v_job;
END $fn$;

-- Appends the fact of a step, with every column that can change. The first fact also has the constant columns. It has
-- the payload only if the event does not exist. If the event's workspace does not exist, the fact belongs to no
-- workspace, and its metadata has that workspace's id.
CREATE OR REPLACE FUNCTION forebay.append_job_fact(
    p_row public.workflow_queue_projection, p_fact text, p_job forebay.workflow_queue_job)
RETURNS void LANGUAGE plpgsql AS $fn$
BEGIN
    INSERT INTO public.domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data,
                                      event_metadata)
    SELECT p_job.workspace_id, p_row.id, 'workflow_queue', p_job.version, 'workflow.queue.' || p_fact,
           CASE WHEN p_job.version > 1
                THEN to_jsonb(p_row) - '{id,event_id,event_type,event_data,stream_id,stream_type,created_at}'::text[]
                WHEN EXISTS (SELECT 1 FROM public.domain_events event
                              WHERE event.id = p_row.event_id
                                AND event.workspace_id IS NOT DISTINCT FROM p_job.event_workspace_id)
                THEN to_jsonb(p_row) - 'event_data'
                ELSE to_jsonb(p_row) END,
           jsonb_strip_nulls(jsonb_build_object('causation_id', p_row.event_id,
               'event_workspace_id', CASE WHEN p_job.workspace_id IS NULL THEN p_job.event_workspace_id END));
END $fn$;

-- Writes a change of a job to the change log. The workspace comes from the job's row, because an event id alone does
-- not identify a workspace. If that row is gone, it comes from the last fact; if there is no fact either, from the
-- event.
CREATE OR REPLACE FUNCTION forebay.log_projection() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $fn$
DECLARE
    v_row public.workflow_queue_projection := coalesce(NEW, OLD);
BEGIN
    INSERT INTO forebay.change_log (topic, op, refs, workspaces, record, old_record)
    SELECT 'job', TG_OP, ARRAY[v_row.id], ARRAY[found.workspace_id],
           CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END, CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END
      FROM (SELECT 1) one
      LEFT JOIN LATERAL (
            SELECT coalesce(job.event_workspace_id, job.workspace_id) AS workspace_id
              FROM forebay.workflow_queue_job job
             WHERE job.id = v_row.id
            UNION ALL
            (SELECT fact.workspace_id FROM public.domain_events fact
              WHERE fact.stream_id = v_row.id AND fact.stream_type = 'workflow_queue'
              ORDER BY fact.stream_version DESC
              LIMIT 1)
            UNION ALL
            SELECT event.workspace_id
              FROM forebay.event_of(v_row.event_id, NULL, v_row.stream_id, v_row.stream_type, v_row.event_type) event
            LIMIT 1) found ON true;
    PERFORM forebay.notify_change();
    RETURN NULL;
END $fn$;

CREATE OR REPLACE FUNCTION forebay.job_truncate() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
    PERFORM forebay.refuse_job_change('jobs are deleted by retention only', 'set retention.job_days');
    RETURN NULL;
END $fn$;
