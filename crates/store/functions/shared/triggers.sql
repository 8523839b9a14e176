-- The triggers, each created once. An existing one stays, and only its function is replaced: creating a trigger again
-- would lock its table against writers.
DO $do$
DECLARE
    v_trigger record;
BEGIN
    FOR v_trigger IN
        SELECT wanted.* FROM (VALUES
            -- A change of a limit waits for the claims of its shard: shared/limit.sql.
            ('forebay.tier', 'lock_limit_change', 'BEFORE UPDATE OF max_running', 'FOR EACH ROW',
             'forebay.lock_limit_change()'),
            ('forebay.workspace', 'lock_limit_change', 'BEFORE UPDATE OF tier, limit_override, paused, deleted_at',
             'FOR EACH ROW', 'forebay.lock_limit_change()'),
            ('forebay.workflow_definition', 'lock_limit_change',
             'BEFORE UPDATE OF status, concurrency, key_concurrency, deleted_at', 'FOR EACH ROW',
             'forebay.lock_limit_change()'),
            -- An event is bound, folded into its job, and noted for waits: shared/event.sql.
            ('public.domain_events', 'forebay_bound', 'BEFORE INSERT',
             'FOR EACH ROW WHEN (NEW.stream_type <> ''workflow_queue'')', 'forebay.set_event_bound()'),
            ('public.domain_events', 'forebay_fold', 'AFTER INSERT',
             'FOR EACH ROW WHEN (NEW.stream_type <> ''workflow_queue'')', 'forebay.fold_new_event()'),
            ('public.domain_events', 'forebay_match', 'AFTER INSERT',
             'FOR EACH ROW WHEN (NEW.stream_type <> ''workflow_queue'' AND NEW.workspace_id IS NOT NULL)',
             'forebay.add_event_candidate()'),
            ('public.domain_events', 'forebay_facts', 'BEFORE INSERT',
             'FOR EACH ROW WHEN (NEW.stream_type = ''workflow_queue'')', 'forebay.fact_guard()'),
            ('public.domain_events', 'forebay_guard',
             'BEFORE UPDATE OF id, sequence, workspace_id, stream_id, stream_type, stream_version, event_type, '
             'event_data, event_metadata, created_at OR DELETE', 'FOR EACH ROW', 'forebay.event_guard()'),
            ('public.domain_events', 'forebay_truncate', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT',
             'forebay.event_guard()'),
            -- A job makes only legal steps; each appends a fact and writes to the change log: shared/job.sql.
            ('public.workflow_queue_projection', 'forebay_guard', 'BEFORE INSERT OR UPDATE OR DELETE', 'FOR EACH ROW',
             'forebay.job_guard()'),
            ('public.workflow_queue_projection', 'forebay_changed', 'AFTER INSERT OR UPDATE OR DELETE', 'FOR EACH ROW',
             'forebay.job_changed()'),
            ('public.workflow_queue_projection', 'workflow_queue_projection_logged', 'AFTER INSERT OR UPDATE OR DELETE',
             'FOR EACH ROW', 'forebay.log_projection()'),
            ('public.workflow_queue_projection', 'forebay_truncate', 'BEFORE TRUNCATE', 'FOR EACH STATEMENT',
             'forebay.job_truncate()')) AS wanted(on_table, name, events, for_each, function)
         WHERE NOT EXISTS (SELECT 1 FROM pg_trigger made
                            WHERE made.tgrelid = wanted.on_table::regclass AND made.tgname = wanted.name)
    LOOP
        EXECUTE format('CREATE TRIGGER %I %s ON %s %s EXECUTE FUNCTION %s',
                       v_trigger.name, v_trigger.events, v_trigger.on_table, v_trigger.for_each, v_trigger.function);
    END LOOP;
END $do$;
