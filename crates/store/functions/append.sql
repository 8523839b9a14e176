-- Events as our own processes append them, and events whose handling failed.

-- The id that an event has whose id the service derives: the same for the same seed, and known to nobody who knows the
-- seed alone.
CREATE OR REPLACE FUNCTION forebay_r1.derived_event_id(p_workspace uuid, p_seed uuid) RETURNS uuid
LANGUAGE sql STABLE AS $fn$
    SELECT overlay(overlay(substr(encode(
               sha256(own.secret || coalesce(uuid_send(p_workspace), '') || uuid_send(p_seed)), 'hex'), 1, 32)
               PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid
      FROM forebay.event_secret own
$fn$;

-- Appends events in the order given, all or none. Repeatable by id: same id and content is there already (`added`
-- false). p_derived: the id given is only the seed of the event's own (derived_event_id). Ids and streams are a
-- workspace's (null: nobody's). p_expected is the version that its stream must be at (0: there is none yet), null for
-- whatever it is at; later events of the same stream in one call follow. A version that is not met, or an id with other
-- content, raises (version_conflict, id_conflict).
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
    -- Streams are appended to one at a time, in one order for all calls.
    PERFORM pg_advisory_xact_lock(forebay.lock_stream(), streams.key) FROM (
        SELECT DISTINCT hashtext(concat_ws('/', asked.workspace, asked.stream, asked.type)) AS key
          FROM unnest(p_workspaces, p_streams, p_stream_types) AS asked(workspace, stream, type)
         ORDER BY 1) streams;
    FOR v_event IN
        SELECT *
          FROM unnest(p_ids, p_derived, p_workspaces, p_streams, p_stream_types, p_expected, p_types, p_data,
                      p_metadata)
               WITH ORDINALITY
               AS asked(id, derived, workspace, stream, stream_type, expected, type, data, metadata, ord)
    LOOP
        v_id := CASE WHEN v_event.derived THEN forebay_r1.derived_event_id(v_event.workspace, v_event.id)
                     ELSE v_event.id END;
        SELECT *
          INTO v_old
          FROM public.domain_events event
         WHERE event.id = v_id AND event.workspace_id IS NOT DISTINCT FROM v_event.workspace;
        IF NOT FOUND AND v_event.derived THEN
            -- A build before this one took the seed for the id; a crash since then must not repeat the event.
            SELECT * INTO v_old FROM public.domain_events event
             WHERE event.id = v_event.id AND event.workspace_id IS NOT DISTINCT FROM v_event.workspace
               AND event.stream_id = v_event.stream AND event.stream_type = v_event.stream_type
               AND event.event_type = v_event.type
               AND event.event_data = v_event.data;
        END IF;
        IF FOUND THEN
            IF (v_old.stream_id, v_old.stream_type, v_old.event_type, v_old.event_data)
               IS DISTINCT FROM (v_event.stream, v_event.stream_type, v_event.type, v_event.data) THEN
                RAISE EXCEPTION 'event %: this id was used with other content', v_event.ord - 1
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

-- The version that a workspace's stream (null: nobody's) is at, 0 without one. Two probes of the index: IS NOT DISTINCT
-- FROM would read the whole stream.
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

-- Folds an event again whose handling failed; answers whether that went well this time (null: it had not failed). One
-- that is bound no more has nothing left to go wrong. A transient error is raised, and the stored one stays.
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
            PERFORM forebay.make_job(v_event, forebay.binding_of(v_event.event_type, v_event.workspace_id));
        END IF;
    EXCEPTION
        WHEN OTHERS THEN
            IF forebay.is_transient(SQLSTATE) THEN
                RAISE;
            END IF;
            UPDATE public.domain_events
               SET processing_error = left(SQLSTATE || ': ' || SQLERRM, 2000), processing_failed_at = clock_timestamp()
             WHERE sequence = p_sequence;
            RETURN false;
    END;
    UPDATE public.domain_events SET processing_error = NULL, processing_failed_at = NULL WHERE sequence = p_sequence;
    RETURN true;
END $fn$;

-- Folds again the events whose stored error is transient: builds before this one stored those too. The one that was
-- tried longest ago comes first, p_limit at most; answers how many were settled. Another transient error moves its
-- event to the end and ends the call, so that one lock is waited for once a pass and no event keeps the others from
-- their turn.
CREATE OR REPLACE FUNCTION forebay_r1.fold_failed_events(p_limit int) RETURNS int
LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '2s' AS $fn$
DECLARE
    v_event record;
    v_done int := 0;
BEGIN
    -- The condition is the index's (domain_events_to_fold), word for word.
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
                UPDATE public.domain_events
                   SET processing_error = left(SQLSTATE || ': ' || SQLERRM, 2000),
                       processing_failed_at = clock_timestamp()
                 WHERE sequence = v_event.sequence;
                EXIT;
        END;
    END LOOP;
    RETURN v_done;
END $fn$;
