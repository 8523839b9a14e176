-- Appends events for Forebay's own processes, and repeats the fold of events whose fold failed. To fold an event is to
-- make its job (shared/event.sql).

-- The stored id of an event whose id the service derives from a seed. The same seed always gives the same id. Without
-- the database's secret, nobody can compute the id from the seed.
CREATE OR REPLACE FUNCTION forebay_r1.derived_event_id(p_workspace uuid, p_seed uuid) RETURNS uuid
LANGUAGE sql STABLE AS $fn$
    SELECT overlay(overlay(substr(encode(
               sha256(own.secret || coalesce(uuid_send(p_workspace), '') || uuid_send(p_seed)), 'hex'), 1, 32)
               PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid
      FROM forebay.event_secret own
$fn$;

-- Appends events in the order given, all or none. Repeatable by id: if an event with the same id and content exists, it
-- is returned with `added` false. p_derived: the id is only a seed (derived_event_id). Ids and streams belong to a
-- workspace; null means to no workspace. p_expected is the version that the stream must have (0: it does not exist;
-- null: any version). If several events in one call belong to the same stream, each expects the version that the event
-- before it made. A wrong version raises version_conflict; an id that was used with other content raises id_conflict.
CREATE OR REPLACE FUNCTION forebay_r1.append_events(
    p_ids uuid[], p_derived boolean[], p_workspaces uuid[], p_streams uuid[], p_stream_types text[], p_expected int[],
    p_types text[], p_data jsonb[], p_metadata jsonb[])
RETURNS TABLE (ord bigint, id uuid, added boolean, sequence bigint, version int, created timestamptz, bound boolean)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '2s'
AS $fn$
#variable_conflict use_column
DECLARE
    v_event record;
    v_id uuid;
    v_old public.domain_events;
    v_latest int;
BEGIN
    -- At most one transaction at a time appends to a stream. All calls lock streams in the same order, so they do not
    -- deadlock.
    PERFORM pg_advisory_xact_lock(forebay.lock_stream(), streams.key) FROM (
        SELECT DISTINCT hashtext(concat_ws('/', requested.workspace, requested.stream, requested.type)) AS key
          FROM unnest(p_workspaces, p_streams, p_stream_types) AS requested(workspace, stream, type)
         ORDER BY 1) streams;
    FOR v_event IN
        SELECT *
          FROM unnest(p_ids, p_derived, p_workspaces, p_streams, p_stream_types, p_expected, p_types, p_data,
                      p_metadata)
               WITH ORDINALITY
               AS requested(id, derived, workspace, stream, stream_type, expected, type, data, metadata, ord)
    LOOP
        v_id := CASE WHEN v_event.derived THEN forebay_r1.derived_event_id(v_event.workspace, v_event.id)
                     ELSE v_event.id END;
        SELECT *
          INTO v_old
          FROM public.domain_events event
         WHERE event.id = v_id AND event.workspace_id IS NOT DISTINCT FROM v_event.workspace;
        IF NOT FOUND AND v_event.derived THEN
            -- An older build used the seed itself as the id. If that build crashed and its caller repeats the call, the
            -- event must not be appended twice.
            SELECT * INTO v_old FROM public.domain_events event
             WHERE event.id = v_event.id AND event.workspace_id IS NOT DISTINCT FROM v_event.workspace
               AND event.stream_id = v_event.stream AND event.stream_type = v_event.stream_type
               AND event.event_type = v_event.type
               AND event.event_data = v_event.data;
        END IF;
        IF FOUND THEN
            IF (v_old.stream_id, v_old.stream_type, v_old.event_type, v_old.event_data)
               IS DISTINCT FROM (v_event.stream, v_event.stream_type, v_event.type, v_event.data) THEN
                RAISE EXCEPTION 'event %: this id was already used with other content', v_event.ord - 1
                    USING ERRCODE = 'unique_violation', CONSTRAINT = 'id_conflict';
            END IF;
            RETURN QUERY SELECT v_event.ord, v_old.id, false, v_old.sequence, v_old.stream_version, v_old.created_at,
                                v_old.bound;
            CONTINUE;
        END IF;
        v_latest := forebay_r1.stream_version(v_event.workspace, v_event.stream, v_event.stream_type);
        IF v_event.expected <> v_latest THEN
            RAISE EXCEPTION 'event %: its stream is at version %, not %', v_event.ord - 1, v_latest, v_event.expected
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'version_conflict';
        END IF;
        RETURN QUERY
        INSERT INTO public.domain_events AS event (id, workspace_id, stream_id, stream_type, stream_version, event_type,
                                                   event_data, event_metadata)
        VALUES (v_id, v_event.workspace, v_event.stream, v_event.stream_type, v_latest + 1, v_event.type, v_event.data,
                coalesce(v_event.metadata, '{}'))
        RETURNING v_event.ord, event.id, true, event.sequence, event.stream_version, event.created_at, event.bound;
    END LOOP;
END $fn$;

-- The version of a stream of a workspace (null: of no workspace); 0 if the stream does not exist. Written as two index
-- probes, because one condition with IS NOT DISTINCT FROM would read the whole stream.
CREATE OR REPLACE FUNCTION forebay_r1.stream_version(p_workspace uuid, p_stream uuid, p_stream_type text) RETURNS int
LANGUAGE sql STABLE AS $fn$
    SELECT coalesce(
        CASE WHEN p_workspace IS NULL
             THEN (SELECT event.stream_version FROM public.domain_events event
                    WHERE event.stream_id = p_stream AND event.stream_type = p_stream_type
                      AND event.workspace_id IS NULL
                    ORDER BY event.workspace_id DESC, event.stream_version DESC LIMIT 1)
             ELSE (SELECT event.stream_version FROM public.domain_events event
                    WHERE event.stream_id = p_stream AND event.stream_type = p_stream_type
                      AND event.workspace_id = p_workspace
                    ORDER BY event.stream_version DESC LIMIT 1) END, 0)
$fn$;

-- Folds an event again if its fold failed, and returns whether the fold succeeded (null: the event has no error). For
-- an event that is no longer bound, there is nothing to make, so it succeeds. A transient error is raised, and the
-- stored error stays.
CREATE OR REPLACE FUNCTION forebay_r1.fold_event(p_sequence bigint) RETURNS boolean LANGUAGE plpgsql AS $fn$
DECLARE
    v_event public.domain_events;
BEGIN
    SELECT *
      INTO v_event
      FROM public.domain_events event
     WHERE event.sequence = p_sequence AND event.processing_error IS NOT NULL
     FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    BEGIN
        IF forebay.is_bound(v_event.event_type, v_event.workspace_id) THEN
            PERFORM forebay.create_job(v_event, forebay.binding_of(v_event.event_type, v_event.workspace_id));
        END IF;
    EXCEPTION
        WHEN OTHERS THEN
            IF forebay.is_transient(SQLSTATE) THEN
                RAISE;
            END IF;
            PERFORM forebay.set_fold_error(p_sequence, SQLSTATE || ': ' || SQLERRM);
            RETURN false;
    END;
    PERFORM forebay.set_fold_error(p_sequence, NULL);
    RETURN true;
END $fn$;

-- Folds events again whose stored error is transient. (Older builds stored transient errors too.) The event that was
-- tried longest ago comes first, at most p_limit events; returns how many were settled. If an event fails with a
-- transient error again, it moves to the end and the call ends. So a call waits for at most one lock, and no event
-- delays the others forever.
CREATE OR REPLACE FUNCTION forebay_r1.fold_failed_events(p_limit int) RETURNS int
LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '2s' AS $fn$
DECLARE
    v_event record;
    v_done int := 0;
BEGIN
    -- This condition must equal that of the index domain_events_to_fold.
    FOR v_event IN
        SELECT event.sequence FROM public.domain_events event
         WHERE left(event.processing_error, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58'])
         ORDER BY event.processing_failed_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        BEGIN
            PERFORM forebay_r1.fold_event(v_event.sequence);
            v_done := v_done + 1;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT forebay.is_transient(SQLSTATE) THEN
                    RAISE;
                END IF;
                PERFORM forebay.set_fold_error(v_event.sequence, SQLSTATE || ': ' || SQLERRM);
                EXIT;
        END;
    END LOOP;
    RETURN v_done;
END $fn$;
